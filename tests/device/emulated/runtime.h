// What torch asks of a device besides kernels: a guard, a generator of random numbers, and hooks.
//
// There is one device, with one stream.
#pragma once
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <atomic>

#include "memory.h"

namespace emulated {

inline const c10::Device DEVICE(c10::DeviceType::CUDA, 0);

struct Guard final : c10::impl::DeviceGuardImplInterface {
    c10::DeviceType type() const override { return c10::DeviceType::CUDA; }
    c10::Device exchangeDevice(c10::Device) const override { return DEVICE; }
    c10::Device getDevice() const override { return DEVICE; }
    void setDevice(c10::Device) const override {}
    void uncheckedSetDevice(c10::Device) const noexcept override {}
    c10::Stream getStream(c10::Device) const override { return c10::Stream(c10::Stream::DEFAULT, DEVICE); }
    c10::Stream getDefaultStream(c10::Device) const override { return c10::Stream(c10::Stream::DEFAULT, DEVICE); }
    c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
    c10::DeviceIndex deviceCount() const noexcept override { return 1; }
    void record(void **, const c10::Stream &, const c10::DeviceIndex, const c10::EventFlag) const override {}
    void block(void *, const c10::Stream &) const override {}
};

// Draws the numbers that a generator of the CPU would: results can be compared.
struct Generator final : c10::GeneratorImpl {
    Generator() : GeneratorImpl(DEVICE, c10::DispatchKeySet(c10::DispatchKey::CUDA)) {}
    void set_current_seed(uint64_t seed) override { inner.set_current_seed(seed); }
    void set_offset(uint64_t) override {}
    uint64_t get_offset() const override { return 0; }
    uint64_t current_seed() const override { return inner.current_seed(); }
    uint64_t seed() override { return inner.seed(); }
    void set_state(const c10::TensorImpl &state) override { inner.unsafeGetGeneratorImpl()->set_state(state); }
    c10::intrusive_ptr<c10::TensorImpl> get_state() const override { return inner.unsafeGetGeneratorImpl()->get_state(); }
    Generator *clone_impl() const override {
        auto *copy = new Generator();
        copy->inner = inner.clone();
        return copy;
    }
    at::Generator inner = at::detail::createCPUGenerator();
};
inline at::Generator &default_generator() {
    static at::Generator held = at::make_generator<Generator>();
    return held;
}
// Returns the generator of the CPU that draws for one of the device, the default if there is none.
inline at::Generator generator_of_host(const at::Generator &given) {
    const at::Generator &meant = given.defined() ? given : default_generator();
    return meant.device().is_cuda() ? static_cast<Generator *>(meant.unsafeGetGeneratorImpl())->inner : meant;
}

struct Hooks final : at::CUDAHooksInterface {
    void init() const override {}
    bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
    bool hasCUDA() const override { return true; }
    bool isBuilt() const override { return true; }
    bool isAvailable() const override { return true; }
    int getNumGPUs() const override { return 1; }
    c10::DeviceIndex deviceCount() const override { return 1; }
    c10::DeviceIndex current_device() const override { return 0; }
    c10::DeviceIndex getCurrentDevice() const override { return 0; }
    void setCurrentDevice(c10::DeviceIndex) const override {}
    c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
    c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }
    c10::Device getDeviceFromPtr(void *) const override { return DEVICE; }
    bool isPinnedPtr(const void *address) const override { return PinnedAllocator::owns(address); }
    c10::Allocator *getPinnedMemoryAllocator() const override { return &pinned_allocator; }
    c10::Allocator *getCUDADeviceAllocator() const override { return &device_allocator; }
    const at::Generator &getDefaultGenerator(c10::DeviceIndex) const override { return default_generator(); }
    // The first is the default: Python has no other way to it in a build without CUDA.
    at::Generator getNewGenerator(c10::DeviceIndex) const override {
        static std::atomic<bool> given{false};
        return given.exchange(true) ? at::make_generator<Generator>() : default_generator();
    }
};

// torch asked for its hooks while it was imported, and keeps an object that says "no CUDA": the object gets another class.
inline void replace_hooks() {
    static Hooks own;
    auto *kept = const_cast<at::CUDAHooksInterface *>(&at::detail::getCUDAHooks());
    *reinterpret_cast<void **>(kept) = *reinterpret_cast<void **>(&own);
}

}  // namespace emulated
