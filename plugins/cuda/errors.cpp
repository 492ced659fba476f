// SPDX-License-Identifier: Apache-2.0
#include "errors.hpp"

namespace cuda {

bool is_sticky(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorExternalDevice:
      return true;
    default:
      return false;
  }
}

eng_status status_of(cudaError_t error) {
  if (error >= cudaErrorStreamCaptureUnsupported && error <= cudaErrorCapturedEvent) return ENG_UNSUPPORTED;
  switch (error) {
    case cudaSuccess:
      return ENG_OK;
    case cudaErrorMemoryAllocation:
      return ENG_NO_MEMORY;
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorInitializationError:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorSystemNotReady:
    case cudaErrorDevicesUnavailable:
      return ENG_UNAVAILABLE;
    case cudaErrorStreamCaptureWrongThread:
    case cudaErrorNotSupported:
      return ENG_UNSUPPORTED;
    case cudaErrorInvalidValue:
      return ENG_INVALID;
    default:
      return ENG_INTERNAL;
  }
}

std::string text_of(cudaError_t error, bool known) {
  const std::string text = std::string(cudaGetErrorName(error)) + " (" + cudaGetErrorString(error) + ")";
  if (!is_sticky(error)) return text;
  const std::string ended = "ended the CUDA context: nothing more can run in this process";
  if (known) return text + ". It " + ended;
  return text + ". It came from work that was enqueued before and " + ended +
         ". To find the op, go on from the last checkpoint, waiting for each launch:  engine run RUN "
         "device.synchronous=true";
}

void check(cudaError_t error, const std::string& doing, bool known) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // else the next check of a launch finds it again
  throw Error{status_of(error), doing + ": " + text_of(error, known)};
}

}  // namespace cuda
