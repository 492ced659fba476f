/* SPDX-License-Identifier: Apache-2.0
 * The libcuda.so.1 that cuDNN needs to finish a plan where there is no driver: it takes compiled kernels and can run
 * nothing. Everything that it lacks, cuDNN does without. */
typedef int Result; /* CUDA_SUCCESS */
Result cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}
Result cuLibraryLoadData(void** library, const void* code, void* jit_keys, void* jit_values, unsigned n_jit, void* keys,
                         void* values, unsigned n) {
  (void)code, (void)jit_keys, (void)jit_values, (void)n_jit, (void)keys, (void)values, (void)n;
  *library = (void*)0x1000;
  return 0;
}
Result cuLibraryUnload(void* library) {
  (void)library;
  return 0;
}
Result cuLibraryGetKernel(void** kernel, void* library, const char* name) {
  (void)library, (void)name;
  *kernel = (void*)0x2000;
  return 0;
}
Result cuKernelGetFunction(void** function, void* kernel) {
  (void)kernel;
  *function = (void*)0x3000;
  return 0;
}
Result cuKernelSetAttribute(int what, int value, void* kernel, int device) {
  (void)what, (void)value, (void)kernel, (void)device;
  return 0;
}
Result cuKernelGetAttribute(int* value, int what, void* kernel, int device) {
  (void)what, (void)kernel, (void)device;
  *value = 0;
  return 0;
}
Result cuFuncSetAttribute(void* function, int what, int value) {
  (void)function, (void)what, (void)value;
  return 0;
}
Result cuGetErrorString(int error, const char** text) {
  (void)error;
  *text = "there is no driver";
  return 0;
}
Result cuGetErrorName(int error, const char** text) {
  return cuGetErrorString(error, text);
}
/* cuDNN takes the library only if these exist, too. */
#define NOTHING(name)                      \
  Result name(void) {                      \
    return 100; /* CUDA_ERROR_NO_DEVICE */ \
  }
NOTHING(cuCtxGetCurrent)
NOTHING(cuCtxGetLimit)
NOTHING(cuCtxPopCurrent)
NOTHING(cuCtxPushCurrent)
NOTHING(cuDeviceGet)
NOTHING(cuDeviceGetCount)
NOTHING(cuLaunchCooperativeKernel)
NOTHING(cuLaunchKernel)
NOTHING(cuLaunchKernelEx)
NOTHING(cuLibraryLoadFromFile)
NOTHING(cuLinkAddData)
NOTHING(cuLinkComplete)
NOTHING(cuLinkCreate)
NOTHING(cuLinkDestroy)
NOTHING(cuOccupancyMaxPotentialClusterSize)
NOTHING(cuStreamGetCtx)
NOTHING(cuModuleGetFunction)
NOTHING(cuModuleLoadData)
NOTHING(cuModuleUnload)
NOTHING(cuTensorMapEncodeIm2col)
NOTHING(cuTensorMapEncodeTiled)
