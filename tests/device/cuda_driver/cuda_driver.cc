// A stand-in for the CUDA driver's functions that cuDNN looks up before it makes a plan, for tests without a GPU: there
// is no device, and loaded code is accepted and never run. cuDNN and NVRTC require the others to exist, too; calling
// one returns that there is no device.
#include <cstdint>

extern "C" {

int cuInit(unsigned) {
  return 0;
}
int cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}
int cuDeviceGetCount(int* count) {
  *count = 0;
  return 0;
}
int cuGetErrorString(int, const char** text) {
  *text = "there is no device";
  return 0;
}
int cuThreadExchangeStreamCaptureMode(int*) {
  return 0;
}
int cuLibraryLoadData(void** library, const void*, void*, void*, unsigned, void*, void*, unsigned) {
  static char loaded;
  *library = &loaded;
  return 0;
}
int cuLibraryUnload(void*) {
  return 0;
}
int cuLibraryGetKernel(void** kernel, void* library, const char*) {
  *kernel = library;
  return 0;
}
int cuKernelGetFunction(void** function, void* kernel) {
  *function = kernel;
  return 0;
}
int cuFuncSetAttribute(void*, int, int) {
  return 0;
}
int cuKernelSetAttribute(int, int, void*, int) {
  return 0;
}

#define TEMPER_NOT_THERE(name) \
  int name() {                 \
    return 100;                \
  }
TEMPER_NOT_THERE(cuCtxGetCurrent)
TEMPER_NOT_THERE(cuCtxGetDevice)
TEMPER_NOT_THERE(cuCtxGetLimit)
TEMPER_NOT_THERE(cuCtxPopCurrent)
TEMPER_NOT_THERE(cuCtxPushCurrent)
TEMPER_NOT_THERE(cuDeviceGet)
TEMPER_NOT_THERE(cuDeviceGetAttribute)
TEMPER_NOT_THERE(cuDevicePrimaryCtxRelease)
TEMPER_NOT_THERE(cuDevicePrimaryCtxReset)
TEMPER_NOT_THERE(cuDevicePrimaryCtxRetain)
TEMPER_NOT_THERE(cuFuncGetAttribute)
TEMPER_NOT_THERE(cuGetErrorName)
TEMPER_NOT_THERE(cuGetExportTable)
TEMPER_NOT_THERE(cuKernelGetAttribute)
TEMPER_NOT_THERE(cuLaunchCooperativeKernel)
TEMPER_NOT_THERE(cuLaunchKernel)
TEMPER_NOT_THERE(cuLaunchKernelEx)
TEMPER_NOT_THERE(cuLibraryLoadFromFile)
TEMPER_NOT_THERE(cuLinkAddData)
TEMPER_NOT_THERE(cuLinkAddData_v2)
TEMPER_NOT_THERE(cuLinkAddFile_v2)
TEMPER_NOT_THERE(cuLinkComplete)
TEMPER_NOT_THERE(cuLinkCreate)
TEMPER_NOT_THERE(cuLinkCreate_v2)
TEMPER_NOT_THERE(cuLinkDestroy)
TEMPER_NOT_THERE(cuMemcpyDtoH_v2)
TEMPER_NOT_THERE(cuModuleGetFunction)
TEMPER_NOT_THERE(cuModuleGetGlobal_v2)
TEMPER_NOT_THERE(cuModuleLoadData)
TEMPER_NOT_THERE(cuModuleLoadDataEx)
TEMPER_NOT_THERE(cuModuleLoadFatBinary)
TEMPER_NOT_THERE(cuModuleUnload)
TEMPER_NOT_THERE(cuOccupancyMaxActiveBlocksPerMultiprocessor)
TEMPER_NOT_THERE(cuOccupancyMaxPotentialClusterSize)
TEMPER_NOT_THERE(cuStreamGetCtx)
TEMPER_NOT_THERE(cuStreamSynchronize)
TEMPER_NOT_THERE(cuTensorMapEncodeIm2col)
TEMPER_NOT_THERE(cuTensorMapEncodeTiled)

}  // extern "C"
