// SPDX-License-Identifier: Apache-2.0
#include "errors.hpp"

#include <algorithm>

namespace cuda {
namespace {

constexpr cudaError_t sticky[] = {
    cudaErrorIllegalAddress,      cudaErrorLaunchFailure,       cudaErrorLaunchTimeout,
    cudaErrorHardwareStackError,  cudaErrorIllegalInstruction,  cudaErrorMisalignedAddress,
    cudaErrorInvalidAddressSpace, cudaErrorInvalidPc,           cudaErrorAssert,
    cudaErrorECCUncorrectable,    cudaErrorNvlinkUncorrectable, cudaErrorExternalDevice};

// All others are ENG_INTERNAL.
constexpr std::pair<cudaError_t, eng_status> statuses[] = {
    {cudaErrorMemoryAllocation, ENG_NO_MEMORY},       {cudaErrorNoDevice, ENG_UNAVAILABLE},
    {cudaErrorInsufficientDriver, ENG_UNAVAILABLE},   {cudaErrorInitializationError, ENG_UNAVAILABLE},
    {cudaErrorSystemDriverMismatch, ENG_UNAVAILABLE}, {cudaErrorSystemNotReady, ENG_UNAVAILABLE},
    {cudaErrorDevicesUnavailable, ENG_UNAVAILABLE},   {cudaErrorStreamCaptureWrongThread, ENG_UNSUPPORTED},
    {cudaErrorNotSupported, ENG_UNSUPPORTED},         {cudaErrorInvalidValue, ENG_INVALID}};

eng_status status_of(cudaError_t error) {
  if (error >= cudaErrorStreamCaptureUnsupported && error <= cudaErrorCapturedEvent) return ENG_UNSUPPORTED;
  for (const auto& [known, status] : statuses)
    if (error == known) return status;
  return ENG_INTERNAL;
}

}  // namespace

bool is_sticky(cudaError_t error) {
  return std::find(std::begin(sticky), std::end(sticky), error) != std::end(sticky);
}

bool worked(cudaError_t error) {
  if (error != cudaSuccess) cudaGetLastError();
  return error == cudaSuccess;
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

void check(cudaError_t error, std::string_view doing, bool known) {
  if (!worked(error)) throw Error{status_of(error), std::string(doing) + ": " + text_of(error, known)};
}

}  // namespace cuda
