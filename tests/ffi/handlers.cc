// Handlers in C++, as people write them.
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

// -- operands, results, attributes

static ffi::Error ScaleImpl(float scale, ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> y) {
  for (size_t i = 0; i < x.element_count(); ++i) y->typed_data()[i] = scale * x.typed_data()[i];
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(Scale, ScaleImpl,
                              ffi::Ffi::Bind().Attr<float>("scale").Arg<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::F32>>(),
                              {ffi::Traits::kCmdBufferCompatible});

static ffi::Error AttrsImpl(bool b, int8_t i8, uint64_t u64, double f64, std::string_view text,
                            ffi::Span<const int64_t> axes, ffi::Dictionary nested, ffi::ResultBufferR1<ffi::F64> y) {
  auto inner = nested.get<int32_t>("inner");
  if (!inner) return inner.error();
  auto missing = nested.get<int32_t>("missing");
  double* out = y->typed_data();
  out[0] = b;
  out[1] = i8;
  out[2] = static_cast<double>(u64);
  out[3] = f64;
  out[4] = static_cast<double>(text.size());
  out[5] = 0;
  for (int64_t axis : axes) out[5] = 10 * out[5] + axis;
  out[6] = *inner;
  out[7] = missing.has_error();
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(Attrs, AttrsImpl,
                              ffi::Ffi::Bind()
                                  .Attr<bool>("b")
                                  .Attr<int8_t>("i8")
                                  .Attr<uint64_t>("u64")
                                  .Attr<double>("f64")
                                  .Attr<std::string_view>("text")
                                  .Attr<ffi::Span<const int64_t>>("axes")
                                  .Attr<ffi::Dictionary>("nested")
                                  .Ret<ffi::BufferR1<ffi::F64>>());

// The sum of all operands; the results are copies of it.
static ffi::Error SumImpl(ffi::RemainingArgs args, ffi::RemainingRets rets) {
  std::vector<float> sum;
  for (size_t i = 0; i < args.size(); ++i) {
    auto x = args.get<ffi::Buffer<ffi::F32>>(i);
    if (!x) return x.error();
    sum.resize(x->element_count());
    for (size_t k = 0; k < sum.size(); ++k) sum[k] += x->typed_data()[k];
  }
  for (size_t i = 0; i < rets.size(); ++i) {
    auto y = rets.get<ffi::Buffer<ffi::F32>>(i);
    if (!y) return y.error();
    std::memcpy((*y)->typed_data(), sum.data(), 4 * sum.size());
  }
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(Sum, SumImpl, ffi::Ffi::Bind().RemainingArgs().RemainingRets());

static ffi::Error TokenImpl(ffi::Token, ffi::AnyBuffer x, ffi::Result<ffi::Token>, ffi::Result<ffi::AnyBuffer> y) {
  std::memcpy(y->untyped_data(), x.untyped_data(), x.size_bytes());
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(Token, TokenImpl,
                              ffi::Ffi::Bind().Arg<ffi::Token>().Arg<ffi::AnyBuffer>().Ret<ffi::Token>().Ret<ffi::AnyBuffer>());

// -- the context

struct Data {
  static ffi::TypeId id;
};
ffi::TypeId Data::id = {};

static ffi::Error WhereImpl(int32_t device, ffi::RunId run, ffi::ResultBufferR1<ffi::S64> y) {
  y->typed_data()[0] = device;
  y->typed_data()[1] = run.run_id;
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(Where, WhereImpl,
                              ffi::Ffi::Bind().Ctx<ffi::DeviceOrdinal>().Ctx<ffi::RunId>().Ret<ffi::BufferR1<ffi::S64>>());

static ffi::Error StreamImpl(void* stream, ffi::Result<ffi::AnyBuffer>) { return ffi::Error::Success(); }
XLA_FFI_DEFINE_HANDLER_SYMBOL(Stream, StreamImpl,
                              ffi::Ffi::Bind().Ctx<ffi::PlatformStream<void*>>().Ret<ffi::AnyBuffer>());

// x + 1 by way of scratch memory
static ffi::Error ScratchImpl(ffi::ScratchAllocator scratch, ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> y) {
  auto memory = scratch.Allocate(x.size_bytes(), 16);
  if (!memory) return ffi::Error(ffi::ErrorCode::kResourceExhausted, "no scratch");
  float* between = static_cast<float*>(*memory);
  for (size_t i = 0; i < x.element_count(); ++i) between[i] = x.typed_data()[i] + 1;
  std::memcpy(y->typed_data(), between, x.size_bytes());
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    Scratch, ScratchImpl,
    ffi::Ffi::Bind().Ctx<ffi::ScratchAllocator>().Arg<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::F32>>());

static ffi::Error TooMuchImpl(ffi::ScratchAllocator scratch, ffi::Result<ffi::AnyBuffer>) {
  return scratch.Allocate(size_t{1} << 62) ? ffi::Error::Success() : ffi::Error(ffi::ErrorCode::kResourceExhausted, "no scratch");
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(TooMuch, TooMuchImpl, ffi::Ffi::Bind().Ctx<ffi::ScratchAllocator>().Ret<ffi::AnyBuffer>());

// -- threads

// x * 2 by tasks on the pool, the last of which completes the future
static ffi::Future PoolImpl(ffi::ThreadPool pool, ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> y) {
  int64_t tasks = 3 * pool.num_threads();
  ffi::CountDownPromise done(tasks);
  ffi::Future future(done);
  size_t count = x.element_count();
  for (int64_t task = 0; task < tasks; ++task) {
    pool.Schedule([=, in = x.typed_data(), out = y->typed_data()]() mutable {
      for (size_t i = task * count / tasks; i < (task + 1) * count / tasks; ++i) out[i] = 2 * in[i];
      done.CountDown();
    });
  }
  return future;
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(Pool, PoolImpl,
                              ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Arg<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::F32>>());

// Completed, or failed, by a thread after some milliseconds.
static ffi::Future LaterImpl(int32_t milliseconds, std::string_view error, ffi::Buffer<ffi::F32> x,
                             ffi::ResultBuffer<ffi::F32> y) {
  ffi::Promise promise;
  ffi::Future future(promise);
  std::thread([=, message = std::string(error), n = x.size_bytes(), in = x.typed_data(), out = y->typed_data(),
               promise = std::move(promise)]() mutable {
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    std::memcpy(out, in, n);
    if (message.empty()) {
      promise.SetAvailable();
    } else {
      promise.SetError(ffi::Error(ffi::ErrorCode::kDataLoss, message));
    }
  }).detach();
  return future;
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(LaterCc, LaterImpl,
                              ffi::Ffi::Bind()
                                  .Attr<int32_t>("milliseconds")
                                  .Attr<std::string_view>("error")
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>());

// Sleeps: how long, is in the operand.
static ffi::Error SleepImpl(ffi::BufferR0<ffi::S32> milliseconds, ffi::ResultBufferR0<ffi::S32> y) {
  std::this_thread::sleep_for(std::chrono::milliseconds(*milliseconds.typed_data()));
  *y->typed_data() = *milliseconds.typed_data();
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(Sleep, SleepImpl,
                              ffi::Ffi::Bind().Arg<ffi::BufferR0<ffi::S32>>().Ret<ffi::BufferR0<ffi::S32>>());

// -- state

static std::atomic<int> alive{0}, made{0};

struct Counter {
  static ffi::TypeId id;
  static ffi::TypeInfo info;
  explicit Counter(int64_t first) : value(first) {
    ++alive;
    ++made;
  }
  ~Counter() { --alive; }
  std::atomic<int64_t> value;
};
ffi::TypeId Counter::id = {};
ffi::TypeInfo Counter::info = ffi::MakeTypeInfo<Counter>();

struct Trace {
  static ffi::TypeId id;
  static ffi::TypeInfo info;
  ~Trace() { --alive; }
  int64_t value = (++alive, 0);
};
ffi::TypeId Trace::id = {};
ffi::TypeInfo Trace::info = ffi::MakeTypeInfo<Trace>();

extern "C" {
ffi::TypeId* CounterId() { return &Counter::id; }
ffi::TypeInfo* CounterInfo() { return &Counter::info; }
ffi::TypeId* TraceId() { return &Trace::id; }
ffi::TypeInfo* TraceInfo() { return &Trace::info; }
ffi::TypeId* DataId() { return &Data::id; }
int Alive() { return alive; }
int Made() { return made; }
}

static ffi::ErrorOr<std::unique_ptr<Counter>> CounterNew(int64_t first) {
  if (first < 0) return ffi::Unexpected(ffi::Error::InvalidArgument("first is negative"));
  return std::make_unique<Counter>(first);
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(CounterInstantiate, CounterNew, ffi::Ffi::BindInstantiate().Attr<int64_t>("first"));

static ffi::Error CounterNext(Counter* counter, ffi::AnyBuffer, ffi::ResultBufferR0<ffi::S64> y, int64_t) {
  *y->typed_data() = counter->value++;
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    CounterExecute, CounterNext,
    ffi::Ffi::Bind().Ctx<ffi::State<Counter>>().Arg<ffi::AnyBuffer>().Ret<ffi::BufferR0<ffi::S64>>().Attr<int64_t>("first"));

static ffi::ErrorOr<std::unique_ptr<Trace>> TracePrepareImpl() { return std::make_unique<Trace>(); }
XLA_FFI_DEFINE_HANDLER_SYMBOL(TracePrepare, TracePrepareImpl, ffi::Ffi::BindPrepare());
static ffi::Error TraceInitializeImpl(Trace* trace) {
  trace->value += 100;
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(TraceInitialize, TraceInitializeImpl, ffi::Ffi::BindInitialize().Ctx<ffi::Prepared<Trace>>());
static ffi::Error TraceExecuteImpl(Trace* trace, ffi::AnyBuffer, ffi::ResultBufferR0<ffi::S64> y) {
  *y->typed_data() = trace->value++;
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(TraceExecute, TraceExecuteImpl,
                              ffi::Ffi::Bind().Ctx<ffi::Prepared<Trace>>().Arg<ffi::AnyBuffer>().Ret<ffi::BufferR0<ffi::S64>>());

static ffi::Error DataImpl(Data* data, ffi::Result<ffi::AnyBuffer>) { return ffi::Error::Success(); }
XLA_FFI_DEFINE_HANDLER_SYMBOL(UserData, DataImpl, ffi::Ffi::Bind().Ctx<ffi::UserData<Data>>().Ret<ffi::AnyBuffer>());

// -- errors

static ffi::Error FailImpl(int32_t code, std::string_view message, ffi::Result<ffi::AnyBuffer>) {
  return ffi::Error(static_cast<XLA_FFI_Error_Code>(code), std::string(message));
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(FailCc, FailImpl,
                              ffi::Ffi::Bind().Attr<int32_t>("code").Attr<std::string_view>("message").Ret<ffi::AnyBuffer>());

static ffi::Error ThrowImpl(int32_t what, ffi::Result<ffi::AnyBuffer>) {
  if (what == 0) throw std::runtime_error("thrown");
  if (what == 1) throw 5;
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(Throw, ThrowImpl, ffi::Ffi::Bind().Attr<int32_t>("what").Ret<ffi::AnyBuffer>());
