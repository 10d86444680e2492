// Handlers in plain C: what a frame holds, and each function of the interface called by hand.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "xla/ffi/api/c_api.h"

#if XLA_FFI_API_MINOR > 3  // names of before
#define XLA_FFI_Extension_Base XLA_FFI_InternalExtension
#define XLA_FFI_Error_GetMessage_Args XLA_FFI_Error_GetDetails_Args
#define XLA_FFI_Error_GetMessage XLA_FFI_Error_GetDetails
#define XLA_FFI_ExecutionContext_Get_Args XLA_FFI_InvokeContext_Get_Args
#define XLA_FFI_ExecutionContext_Get XLA_FFI_InvokeContext_Get
#endif

#define SIZED(type, name) \
  struct type name;       \
  memset(&name, 0, sizeof name); \
  name.struct_size = sizeof name

static XLA_FFI_Error* fail(const XLA_FFI_Api* api, XLA_FFI_Error_Code code, const char* message) {
  SIZED(XLA_FFI_Error_Create_Args, args);
  args.message = message;
  args.errc = code;
  return api->XLA_FFI_Error_Create(&args);
}

static int is_metadata(XLA_FFI_CallFrame* frame, int minor) {
  XLA_FFI_Extension_Base* base = frame->extension_start;
  if (base == NULL || base->type != XLA_FFI_Extension_Metadata) return 0;
  struct XLA_FFI_Metadata* metadata = ((struct XLA_FFI_Metadata_Extension*)base)->metadata;
  metadata->api_version.major_version = XLA_FFI_API_MAJOR;
  metadata->api_version.minor_version = minor;
  metadata->traits = XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE;
  return 1;
}

static size_t width(XLA_FFI_DataType type) {
  switch (type) {
    case XLA_FFI_DataType_TOKEN: return 0;
    case XLA_FFI_DataType_S16: case XLA_FFI_DataType_U16: case XLA_FFI_DataType_F16: case XLA_FFI_DataType_BF16:
      return 2;
    case XLA_FFI_DataType_S32: case XLA_FFI_DataType_U32: case XLA_FFI_DataType_F32: return 4;
    case XLA_FFI_DataType_S64: case XLA_FFI_DataType_U64: case XLA_FFI_DataType_F64: case XLA_FFI_DataType_C64:
      return 8;
    case XLA_FFI_DataType_C128: return 16;
    default: return 1;
  }
}

static size_t bytes_of(const XLA_FFI_Buffer* buffer) {
  size_t count = width(buffer->dtype);
  for (int64_t i = 0; i < buffer->rank; ++i) count *= buffer->dims[i];
  return count;
}

typedef struct {
  char* at;
  size_t left;
} Out;

static void put(Out* out, const char* text) {
  size_t length = strlen(text);
  if (length > out->left) length = out->left;
  memcpy(out->at, text, length);
  out->at += length;
  out->left -= length;
}

static void put_hex(Out* out, const void* data, size_t count) {
  char two[3];
  for (size_t i = 0; i < count; ++i) {
    snprintf(two, sizeof two, "%02x", ((const unsigned char*)data)[i]);
    put(out, two);
  }
}

static void put_buffer(Out* out, const char* kind, XLA_FFI_Buffer* buffer, int contents) {
  char text[64];
  snprintf(text, sizeof text, "%s %d [", kind, (int)buffer->dtype);
  put(out, text);
  for (int64_t i = 0; i < buffer->rank; ++i) {
    snprintf(text, sizeof text, "%s%lld", i ? "," : "", (long long)buffer->dims[i]);
    put(out, text);
  }
  put(out, bytes_of(buffer) && (size_t)buffer->data % 64 ? "] crooked " : "] ");
  if (contents) put_hex(out, buffer->data, bytes_of(buffer));
  put(out, "\n");
}

static void put_attributes(Out* out, const XLA_FFI_Attrs* attrs) {
  char text[64];
  for (int64_t i = 0; i < attrs->size; ++i) {
    put(out, "attr ");
    put_hex(out, attrs->names[i]->ptr, attrs->names[i]->len);
    switch (attrs->types[i]) {
      case XLA_FFI_AttrType_SCALAR: {
        XLA_FFI_Scalar* scalar = attrs->attrs[i];
        snprintf(text, sizeof text, " scalar %d ", (int)scalar->dtype);
        put(out, text);
        put_hex(out, scalar->value, width(scalar->dtype));
        break;
      }
      case XLA_FFI_AttrType_ARRAY: {
        XLA_FFI_Array* array = attrs->attrs[i];
        snprintf(text, sizeof text, " array %d %zu ", (int)array->dtype, array->size);
        put(out, text);
        put_hex(out, array->data, array->size * width(array->dtype));
        break;
      }
      case XLA_FFI_AttrType_STRING: {
        XLA_FFI_ByteSpan* span = attrs->attrs[i];
        put(out, " string ");
        put_hex(out, span->ptr, span->len);
        break;
      }
      case XLA_FFI_AttrType_DICTIONARY:
        put(out, " {\n");
        put_attributes(out, attrs->attrs[i]);
        put(out, "}");
        break;
    }
    put(out, "\n");
  }
}

// The first result, bytes, becomes a text that says what the frame holds; the others the operand with as many bytes.
XLA_FFI_Error* Describe(XLA_FFI_CallFrame* frame) {
  if (is_metadata(frame, XLA_FFI_API_MINOR)) return NULL;
  XLA_FFI_Buffer* text = frame->rets.rets[0];
  Out out = {text->data, bytes_of(text)};
  for (int64_t i = 0; i < frame->args.size; ++i) {
    if (frame->args.types[i] != XLA_FFI_ArgType_BUFFER) return fail(frame->api, 3, "an argument is no buffer");
    put_buffer(&out, "arg", frame->args.args[i], 1);
  }
  memset(out.at, 0, out.left);
  for (int64_t i = 1; i < frame->rets.size; ++i) {
    if (frame->rets.types[i] != XLA_FFI_RetType_BUFFER) return fail(frame->api, 3, "a result is no buffer");
    XLA_FFI_Buffer* buffer = frame->rets.rets[i];
    put_buffer(&out, "ret", buffer, 0);
    for (int64_t j = 0; j < frame->args.size; ++j) {
      XLA_FFI_Buffer* operand = frame->args.args[j];
      if (bytes_of(operand) == bytes_of(buffer) && operand->dtype == buffer->dtype) {
        memmove(buffer->data, operand->data, bytes_of(buffer));
        break;
      }
    }
  }
  put_attributes(&out, &frame->attrs);
  return NULL;
}

XLA_FFI_Error* TooNew(XLA_FFI_CallFrame* frame) {
  return is_metadata(frame, 99) ? NULL : fail(frame->api, 13, "called");
}

XLA_FFI_Error* TooOld(XLA_FFI_CallFrame* frame) {
  return is_metadata(frame, 0) ? NULL : fail(frame->api, 13, "called");
}

XLA_FFI_Error* Unwilling(XLA_FFI_CallFrame* frame) { return fail(frame->api, 9, "no metadata today"); }

// Fails with the attribute `code`, an int32, and the attribute `message`.
XLA_FFI_Error* Fail(XLA_FFI_CallFrame* frame) {
  if (is_metadata(frame, 1)) return NULL;
  XLA_FFI_Scalar* code = frame->attrs.attrs[0];
  XLA_FFI_ByteSpan* span = frame->attrs.attrs[1];
  char message[256] = {0};
  memcpy(message, span->ptr, span->len < 255 ? span->len : 255);
  return fail(frame->api, *(int*)code->value, message);
}

// Both buffers of an alias are one: adds 1 to it, in place.
XLA_FFI_Error* InPlace(XLA_FFI_CallFrame* frame) {
  if (is_metadata(frame, XLA_FFI_API_MINOR)) return NULL;
  XLA_FFI_Buffer *operand = frame->args.args[0], *result = frame->rets.rets[0];
  if (operand->data != result->data) return fail(frame->api, 9, "the operand is elsewhere");
  for (size_t i = 0; i < bytes_of(result) / 4; ++i) ((float*)result->data)[i] += 1;
  return NULL;
}

static void* complete(void* frame_) {
  XLA_FFI_CallFrame* frame = frame_;
  usleep(50000);
  for (size_t i = 0; i < bytes_of(frame->rets.rets[0]) / 4; ++i)
    ((float*)((XLA_FFI_Buffer*)frame->rets.rets[0])->data)[i] = 7;
  SIZED(XLA_FFI_Future_SetAvailable_Args, args);
  args.future = frame->future;
  if (frame->api->XLA_FFI_Future_SetAvailable(&args)) abort();
  return NULL;
}

// Completed by a thread of its own, which has the whole frame until then.
XLA_FFI_Error* Later(XLA_FFI_CallFrame* frame) {
  if (is_metadata(frame, XLA_FFI_API_MINOR)) return NULL;
  SIZED(XLA_FFI_Future_Create_Args, args);
  XLA_FFI_Error* error = frame->api->XLA_FFI_Future_Create(&args);
  if (error) return error;
  frame->future = args.future;
  pthread_t thread;
  pthread_create(&thread, NULL, complete, frame);
  pthread_detach(thread);
  return NULL;
}

static void note(Out* out, const XLA_FFI_Api* api, XLA_FFI_Error* error) {
  if (error == NULL) {
    put(out, "ok\n");
    return;
  }
  SIZED(XLA_FFI_Error_GetMessage_Args, text);
  text.error = error;
  api->XLA_FFI_Error_GetMessage(&text);
  put(out, text.message);
  put(out, "\n");
  SIZED(XLA_FFI_Error_Destroy_Args, end);
  end.error = error;
  api->XLA_FFI_Error_Destroy(&end);
}

static int destroyed;
static void destroy(void* object) {
  destroyed += 1;
  free(object);
}

int Destroyed(void) { return destroyed; }

struct OldState {  // version 0.2
  size_t struct_size;
  XLA_FFI_Extension_Base* extension_start;
  XLA_FFI_ExecutionContext* ctx;
  XLA_FFI_TypeId* type_id;
  void* state;
};

static XLA_FFI_TypeId first_type, second_type;

// Calls the functions in every wrong way; the first result is the text of what they say.
XLA_FFI_Error* Misuse(XLA_FFI_CallFrame* frame) {
  if (is_metadata(frame, XLA_FFI_API_MINOR)) return NULL;
  const XLA_FFI_Api* api = frame->api;
  XLA_FFI_Buffer* buffer = frame->rets.rets[0];
  Out out = {buffer->data, bytes_of(buffer)};
  char line[128];
  snprintf(line, sizeof line, "api %d %d %d\n", api->struct_size >= sizeof *api, api->api_version.major_version,
           api->api_version.minor_version);
  put(&out, line);

  SIZED(XLA_FFI_Stream_Get_Args, stream);
  stream.ctx = frame->ctx;
  note(&out, api, api->XLA_FFI_Stream_Get(&stream));
  stream.struct_size = 8;
  note(&out, api, api->XLA_FFI_Stream_Get(&stream));
  SIZED(XLA_FFI_Handler_Register_Args, handler);
  note(&out, api, api->XLA_FFI_Handler_Register(&handler));

  SIZED(XLA_FFI_TypeInfo, info);
  info.deleter = destroy;
  SIZED(XLA_FFI_Type_Register_Args, type);
  type.type_info = &info;
  static char first_name[32], second_name[32];
  static int calls;
  first_type.type_id = second_type.type_id = 0;
  calls += 1;
  snprintf(first_name, sizeof first_name, "misuse %d a", calls);
  snprintf(second_name, sizeof second_name, "misuse %d b", calls);
  type.name = (XLA_FFI_ByteSpan){first_name, strlen(first_name)};
  type.type_id = &first_type;
  note(&out, api, api->XLA_FFI_Type_Register(&type));
  note(&out, api, api->XLA_FFI_Type_Register(&type));
  type.type_id = &second_type;
  note(&out, api, api->XLA_FFI_Type_Register(&type));
  type.name.ptr = second_name;
  second_type = first_type;
  note(&out, api, api->XLA_FFI_Type_Register(&type));
  second_type.type_id = 12345 + calls;
  note(&out, api, api->XLA_FFI_Type_Register(&type));
  put(&out, second_type.type_id == 12345 + calls ? "adopted\n" : "changed\n");

  SIZED(XLA_FFI_State_Get_Args, get);
  get.ctx = frame->ctx;
  get.type_id = &first_type;
  note(&out, api, api->XLA_FFI_State_Get(&get));
  SIZED(XLA_FFI_State_Set_Args, set);
  set.ctx = frame->ctx;
  XLA_FFI_TypeId unknown = {987654};
  set.type_id = &unknown;
  set.state = malloc(8);
  note(&out, api, api->XLA_FFI_State_Set(&set));
  set.type_id = &first_type;
  note(&out, api, api->XLA_FFI_State_Set(&set));
  note(&out, api, api->XLA_FFI_State_Set(&set));
  get.type_id = &second_type;
  note(&out, api, api->XLA_FFI_State_Get(&get));
  get.type_id = &first_type;
  note(&out, api, api->XLA_FFI_State_Get(&get));
  put(&out, get.state == set.state ? "same\n" : "other\n");
  get.stage = XLA_FFI_ExecutionStage_EXECUTE;
  note(&out, api, api->XLA_FFI_State_Get(&get));
  get.stage = (XLA_FFI_ExecutionStage)-1;
  note(&out, api, api->XLA_FFI_State_Get(&get));
  struct OldState old = {sizeof old, NULL, frame->ctx, &first_type, NULL};
  note(&out, api, api->XLA_FFI_State_Get((XLA_FFI_State_Get_Args*)&old));
  put(&out, old.state == set.state ? "same\n" : "other\n");

  SIZED(XLA_FFI_ExecutionContext_Get_Args, data);
  data.ctx = frame->ctx;
  data.type_id = &first_type;
  note(&out, api, api->XLA_FFI_ExecutionContext_Get(&data));
  data.ctx = NULL;
  note(&out, api, api->XLA_FFI_ExecutionContext_Get(&data));

  SIZED(XLA_FFI_DeviceMemory_Allocate_Args, memory);
  memory.ctx = frame->ctx;
  memory.size = 100;
  memory.alignment = 3;
  note(&out, api, api->XLA_FFI_DeviceMemory_Allocate(&memory));
  memory.alignment = 256;
  note(&out, api, api->XLA_FFI_DeviceMemory_Allocate(&memory));
  put(&out, memory.data && (size_t)memory.data % 256 == 0 ? "aligned\n" : "not aligned\n");
  SIZED(XLA_FFI_DeviceMemory_Free_Args, free_);
  free_.ctx = frame->ctx;
  free_.size = 100;
  free_.data = memory.data;
  note(&out, api, api->XLA_FFI_DeviceMemory_Free(&free_));
  memory.size = (size_t)1 << 62;
  note(&out, api, api->XLA_FFI_DeviceMemory_Allocate(&memory));

  SIZED(XLA_FFI_Future_Create_Args, future);
  note(&out, api, api->XLA_FFI_Future_Create(&future));
  SIZED(XLA_FFI_Future_SetError_Args, error);
  error.future = future.future;
  note(&out, api, api->XLA_FFI_Future_SetError(&error));
  SIZED(XLA_FFI_Future_SetAvailable_Args, available);
  available.future = future.future;
  note(&out, api, api->XLA_FFI_Future_SetAvailable(&available));
  note(&out, api, api->XLA_FFI_Future_SetAvailable(&available));
  note(&out, api, fail(api, (XLA_FFI_Error_Code)77, NULL));
  // Of version 0.5, by their places in the table and in their arguments: an error's code, extensions, options.
  const void* const* functions = (const void* const*)&api->XLA_FFI_Error_Create;
  uint64_t details[5] = {36, 0, 0, 0, 99}, extension[5] = {40, 0, 0, 128, 99}, options[4] = {32, 0, 0, 0};
  details[2] = (uint64_t)fail(api, XLA_FFI_Error_Code_ABORTED, "aborted");
  ((void (*)(void*))functions[1])(details);
  snprintf(line, sizeof line, "%s %d\n", (char*)details[3], (int)details[4]);
  put(&out, line);
  note(&out, api, (XLA_FFI_Error*)details[2]);
  extension[2] = options[2] = (uint64_t)frame->ctx;
  note(&out, api, ((XLA_FFI_Error * (*)(void*)) functions[18])(extension));
  note(&out, api, ((XLA_FFI_Error * (*)(void*)) functions[19])(options));
  snprintf(line, sizeof line, "%d %d\n", (int)extension[4], (int)((struct XLA_FFI_Attrs*)options[3])->size);
  put(&out, line);
  frame->future = future.future;
  return NULL;
}
