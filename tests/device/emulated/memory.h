// Memory of the emulated device: one file, mapped twice.
//
// Tensors hold addresses of a mapping without access, so the host that follows one gets SIGSEGV. Kernels run on the other
// mapping.
#pragma once
#include <c10/core/Allocator.h>
#include <c10/core/Storage.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <vector>

namespace emulated {

constexpr size_t POOL = size_t{32} << 30;  // of addresses: memory is taken when it is written to
constexpr size_t LARGE = size_t{1} << 20;  // from here on, freed memory goes back to the system

class Pool {
  public:
    void open() {
        const int file = memfd_create("emulated-device", 0);
        TORCH_CHECK(file >= 0 && ftruncate(file, POOL) == 0, "there is no file in memory");
        device_ = map(file, PROT_NONE);
        host_ = map(file, PROT_READ | PROT_WRITE);
        close(file);
    }
    void *take(size_t bytes) {
        const size_t unit = bytes < LARGE ? 512 : 1 << 16, size = (bytes + unit - 1) / unit * unit;
        std::lock_guard<std::mutex> guard(lock_);
        auto &known = free_[size];
        size_t at = end_;
        if (known.empty()) {
            TORCH_CHECK(end_ + size <= POOL, "CUDA out of memory (emulated)");
            end_ += size;
            sizes_[at] = size;
        } else {
            at = known.back();
            known.pop_back();
        }
        live_ += size;
        peak_ = std::max(peak_, live_);
        return device_ + at;
    }
    void give_back(void *address) {
        const size_t at = static_cast<char *>(address) - device_;
        std::lock_guard<std::mutex> guard(lock_);
        const size_t size = sizes_.at(at);
        live_ -= size;
        if (size >= LARGE) madvise(host_ + at, size, MADV_REMOVE);
        free_[size].push_back(at);
    }
    // Returns where a kernel finds what a tensor's address stands for.
    void *readable(const void *address) const {
        return address ? host_ + (static_cast<const char *>(address) - device_) : nullptr;
    }
    int64_t live() { return read(live_); }
    int64_t peak() { return read(peak_); }
    void forget_peak() {
        std::lock_guard<std::mutex> guard(lock_);
        peak_ = live_;
    }

  private:
    static char *map(int file, int access) {
        void *found = mmap(nullptr, POOL, access, MAP_SHARED | MAP_NORESERVE, file, 0);
        TORCH_CHECK(found != MAP_FAILED, "there are too few addresses");
        return static_cast<char *>(found);
    }
    int64_t read(size_t &value) {
        std::lock_guard<std::mutex> guard(lock_);
        return static_cast<int64_t>(value);
    }

    char *device_ = nullptr, *host_ = nullptr;
    std::mutex lock_;
    size_t end_ = 0, live_ = 0, peak_ = 0;
    std::map<size_t, std::vector<size_t>> free_;  // size -> offsets
    std::map<size_t, size_t> sizes_;              // offset -> size
};
inline Pool pool;

struct DeviceAllocator final : c10::Allocator {
    static void drop(void *address) { pool.give_back(address); }
    c10::DataPtr allocate(size_t bytes) override {
        const c10::Device device(c10::DeviceType::CUDA, 0);
        if (!bytes) return {nullptr, nullptr, &c10::detail::deleteNothing, device};
        void *address = pool.take(bytes);
        return {address, address, &drop, device};
    }
    c10::DeleterFnPtr raw_deleter() const override { return &drop; }
    void copy_data(void *to, const void *from, size_t bytes) const override {
        std::memcpy(pool.readable(to), pool.readable(from), bytes);
    }
};
inline DeviceAllocator device_allocator;

// Pinned memory is the host's own: what counts is that a copy from it does not wait.
struct PinnedAllocator final : c10::Allocator {
    c10::DataPtr allocate(size_t bytes) override {
        void *address = nullptr;
        if (bytes) TORCH_CHECK(posix_memalign(&address, 4096, bytes) == 0, "out of memory");
        std::lock_guard<std::mutex> guard(lock());
        known().insert(address);
        return {address, address, &drop, c10::Device(c10::DeviceType::CPU)};
    }
    c10::DeleterFnPtr raw_deleter() const override { return &drop; }
    void copy_data(void *to, const void *from, size_t bytes) const override { std::memcpy(to, from, bytes); }
    static bool owns(const void *address) {
        std::lock_guard<std::mutex> guard(lock());
        return known().count(address) > 0;
    }

  private:
    static void drop(void *address) {
        {
            std::lock_guard<std::mutex> guard(lock());
            known().erase(address);
        }
        std::free(address);
    }
    static std::mutex &lock() {
        static std::mutex held;
        return held;
    }
    static std::set<const void *> &known() {
        static std::set<const void *> held;
        return held;
    }
};
inline PinnedAllocator pinned_allocator;

}  // namespace emulated
