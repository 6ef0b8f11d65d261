// An emulated CUDA device in a build of torch for CPUs: for tests only, and for the version of torch that they name.
//
// The caller registers the operators that have a CUDA kernel in real builds. Each runs the CPU's kernel on aliases of its
// tensors, and refuses what a GPU refuses: tensors of the CPU among its own. Operators without a CUDA kernel raise
// NotImplementedError.
// An observer is told of every launch, wait and copy.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <torch/library.h>

#include "memory.h"
#include "runtime.h"

namespace emulated {
namespace {

using c10::IValue;
using torch::jit::Stack;
using Observer = void (*)(const char *kind, const char *operation, int64_t bytes);

C10_REGISTER_GUARD_IMPL(CUDA, Guard);

std::atomic<Observer> observer{nullptr};
std::set<std::string> strict;   // operators that also refuse a number of the CPU
std::set<std::string> waiting;  // operators whose result the host has to know

void tell(const char *kind, const std::string &operation, int64_t bytes) {
    if (auto told = observer.load()) told(kind, operation.c_str(), bytes);
}

// ---- tensors --------------------------------------------------------------------------------------------------------

int64_t bytes_of(const at::Tensor &t) {  // an expanded dimension counts once
    int64_t found = static_cast<int64_t>(t.element_size());
    for (int64_t i = 0; i < t.dim(); i++)
        if (t.stride(i) || !t.size(i)) found *= t.size(i);
    return found;
}
at::Tensor like(const at::Tensor &t, const c10::Storage &storage, c10::DispatchKey key) {
    auto found = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage), c10::DispatchKeySet(key), t.dtype());
    found.unsafeGetTensorImpl()->set_sizes_and_strides(t.sizes(), t.strides(), t.storage_offset());
    found.unsafeGetTensorImpl()->_set_conj(t.is_conj());
    found.unsafeGetTensorImpl()->_set_neg(t.is_neg());
    return found;
}
// Returns a tensor of the CPU with the memory of one of the device. What shares memory until it is written to gets its own.
at::Tensor on_host(const at::Tensor &t, bool writes) {
    const auto &storage = t.storage();
    const auto options = at::TensorOptions().dtype(t.dtype()).device(at::kCPU);
    if (!storage.nbytes()) return at::empty_strided(t.sizes(), t.strides(), options);
    const void *address = writes ? storage.unsafeGetStorageImpl()->mutable_data() : storage.data();
    auto whole = at::from_blob(pool.readable(address), {static_cast<int64_t>(storage.nbytes())}, at::kByte);
    return like(t, whole.storage(), c10::DispatchKey::CPU);
}
at::SparseTensorImpl *sparse_impl(const at::Tensor &t) { return static_cast<at::SparseTensorImpl *>(t.unsafeGetTensorImpl()); }
// Gives one sparse tensor the size of another, with indices and values on its own device.
void fill_sparse(const at::Tensor &t, const at::Tensor &from, const at::Tensor &indices, const at::Tensor &values) {
    auto *impl = sparse_impl(t), *other = sparse_impl(from);
    impl->raw_resize_(other->sparse_dim(), other->dense_dim(), from.sizes());
    impl->set_indices_and_values_unsafe(indices, values);
    impl->set_coalesced(other->coalesced());
}
at::Tensor like_sparse(const at::Tensor &t, const at::Tensor &indices, const at::Tensor &values, c10::DispatchKey key) {
    auto found = at::detail::make_tensor<at::SparseTensorImpl>(c10::DispatchKeySet(key), t.dtype());
    fill_sparse(found, t, indices, values);
    return found;
}
at::Tensor empty_on_device(c10::IntArrayRef sizes, c10::IntArrayRef strides, at::ScalarType dtype) {
    const c10::DispatchKeySet key(c10::DispatchKey::CUDA);
    return at::detail::empty_strided_generic(sizes, strides, &device_allocator, key, dtype);
}
at::Tensor to_device(const at::Tensor &t) {
    auto found = empty_on_device(t.sizes(), t.strides(), t.scalar_type());
    if (t.numel()) on_host(found, true).copy_(t);
    return found;
}
// Gives a tensor of the device the size and memory of its alias, where a kernel has resized that.
void follow(const at::Tensor &device, const at::Tensor &alias) {
    if (alias.sizes() == device.sizes() && alias.strides() == device.strides()) return;
    auto *storage = device.storage().unsafeGetStorageImpl();
    if (alias.storage().data() != pool.readable(device.storage().data())) {
        const auto fresh = to_device(alias);
        storage->set_nbytes(fresh.storage().nbytes());
        storage->set_data_ptr_noswap(fresh.storage().unsafeGetStorageImpl()->set_data_ptr(c10::DataPtr()));
    }
    device.unsafeGetTensorImpl()->set_sizes_and_strides(alias.sizes(), alias.strides(), alias.storage_offset());
}

// ---- a call of a kernel ---------------------------------------------------------------------------------------------

class Call {
  public:
    Call(const c10::OperatorHandle &op, c10::DispatchKey key)
        : name_(c10::toString(op.operator_name())), schema_(op.schema()), key_(key) {
        strict_ = strict.count(name_) > 0;
        lists_ = name_.find("_foreach_") != std::string::npos || name_.find("_fused_") != std::string::npos;
        indexes_ = name_.find("index.") != std::string::npos || name_.find("index_put") != std::string::npos;
    }
    void run(const c10::OperatorHandle &op, Stack *stack) {
        enter(stack);
        TORCH_CHECK(
            !(foreign_ && on_device_),
            "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! (", name_, ")");
        if (waiting.count(name_) || (indexes_ && masked_)) tell("wait", name_, 0);
        if (indexes_ && bytes_sent_) tell("to device", name_, bytes_sent_);
        {
            at::AutoDispatchBelowADInplaceOrView below;
            c10::impl::ExcludeDispatchKeyGuard precise(c10::autocast_dispatch_keyset);
            op.redispatchBoxed(c10::DispatchKeySet(key_), stack);
        }
        leave(stack);
        if (launches_) tell(doubles_ ? "float64 launch" : "launch", name_, bytes_);
    }

  private:
    void enter(Stack *stack) {
        const size_t count = schema_.arguments().size(), begin = stack->size() - count;
        for (size_t i = 0; i < count; i++) {
            const auto &argument = schema_.arguments()[i];
            const bool writes = argument.alias_info() && argument.alias_info()->isWrite();
            launches_ |= writes;
            (*stack)[begin + i] = replaced((*stack)[begin + i], argument, writes);
        }
        launches_ |= schema_.returns().empty();
    }
    IValue replaced(const IValue &value, const c10::Argument &argument, bool writes) {
        if (value.isTensor()) return aliased(value.toTensor(), writes, false);
        if (value.isTensorList()) {
            c10::List<at::Tensor> found;
            for (const at::Tensor t : value.toTensorList()) found.push_back(aliased(t, writes, lists_));
            return found;
        }
        if (value.isOptionalTensorList()) {
            c10::List<std::optional<at::Tensor>> found;
            for (const std::optional<at::Tensor> t : value.toOptionalTensorList()) found.push_back(t ? index(*t) : t);
            return found;
        }
        if (value.isDevice()) {
            on_device_ |= value.toDevice().is_cuda();
            return c10::Device(at::kCPU);
        }
        if (argument.type()->str().find("Generator") != std::string::npos)
            return generator_of_host(value.isNone() ? at::Generator() : value.toGenerator());
        if (argument.name() == "pin_memory" && !value.isNone()) return false;
        return value;
    }
    std::optional<at::Tensor> index(const at::Tensor &t) {
        if (!t.defined()) return t;
        masked_ |= t.scalar_type() == at::kBool || t.scalar_type() == at::kByte;
        if (t.device().is_cpu()) bytes_sent_ += bytes_of(t);
        return aliased(t, false, indexes_);
    }
    at::Tensor aliased(const at::Tensor &t, bool writes, bool takes_host) {
        if (!t.defined()) return t;
        if (!t.is_cuda()) {
            foreign_ |= t.device().is_cpu() && !takes_host && name_ != "aten::copy_" && (t.dim() > 0 || strict_);
            hosts_.push_back(t);
            return t;
        }
        on_device_ = true;
        if (t.is_sparse()) return aliased_sparse(t, writes);
        count(t);
        for (auto &[device, alias] : pairs_)
            if (device.is_same(t)) return alias;
        return pairs_.emplace_back(t, on_host(t, writes)).second;
    }
    at::Tensor aliased_sparse(const at::Tensor &t, bool writes) {
        for (auto &[device, alias] : sparse_pairs_)
            if (device.is_same(t)) return alias;
        const auto indices = aliased(sparse_impl(t)->indices(), writes, false);
        const auto values = aliased(sparse_impl(t)->values(), writes, false);
        const auto alias = like_sparse(t, indices, values, c10::DispatchKey::SparseCPU);
        return sparse_pairs_.emplace_back(t, alias).second;
    }
    void leave(Stack *stack) {
        const size_t results = schema_.returns().size();
        for (size_t i = stack->size() - results; i < stack->size(); i++) {
            IValue &value = (*stack)[i];
            if (value.isTensor()) value = result(value.toTensor());
            if (!value.isTensorList()) continue;
            c10::List<at::Tensor> found;
            for (const at::Tensor t : value.toTensorList()) found.push_back(result(t));
            value = found;
        }
        for (auto &[device, alias] : pairs_) follow(device, alias);
        for (auto &[device, alias] : sparse_pairs_)
            fill_sparse(device, alias, result(sparse_impl(alias)->indices()), result(sparse_impl(alias)->values()));
    }
    at::Tensor result(const at::Tensor &t) {
        if (!t.defined() || !t.device().is_cpu()) return t;
        for (auto &host : hosts_)
            if (host.is_same(t)) return t;
        if (t.is_sparse()) return sparse_result(t);
        for (auto &[device, alias] : pairs_)
            if (alias.is_same(t)) return device;
        for (auto &[device, alias] : pairs_)
            if (alias.storage().data() && alias.storage().data() == t.storage().data())
                return like(t, device.storage(), c10::DispatchKey::CUDA);  // a view
        launches_ = true;
        count(t);
        return to_device(t);
    }
    at::Tensor sparse_result(const at::Tensor &t) {
        for (auto &[device, alias] : sparse_pairs_)
            if (alias.is_same(t)) return device;
        const auto indices = result(sparse_impl(t)->indices()), values = result(sparse_impl(t)->values());
        return like_sparse(t, indices, values, c10::DispatchKey::SparseCUDA);
    }
    void count(const at::Tensor &t) {
        bytes_ += bytes_of(t);
        doubles_ |= t.scalar_type() == at::kDouble && t.numel() > 1;
    }

    const std::string name_;
    const c10::FunctionSchema &schema_;
    const c10::DispatchKey key_;  // of the CPU's kernel
    bool strict_, lists_, indexes_;
    bool on_device_ = false, foreign_ = false, masked_ = false, doubles_ = false, launches_ = false;
    int64_t bytes_ = 0, bytes_sent_ = 0;
    std::vector<std::pair<at::Tensor, at::Tensor>> pairs_, sparse_pairs_;  // tensor of the device, alias
    std::vector<at::Tensor> hosts_;
};

void run_on_host(const c10::OperatorHandle &op, Stack *stack) { Call(op, c10::DispatchKey::CPU).run(op, stack); }
void run_sparse_on_host(const c10::OperatorHandle &op, Stack *stack) { Call(op, c10::DispatchKey::SparseCPU).run(op, stack); }

// ---- kernels that the CPU's cannot stand for ------------------------------------------------------------------------

at::Tensor &copy_(at::Tensor &self, const at::Tensor &from, bool non_blocking) {
    if (!self.numel()) return self;
    at::AutoDispatchBelowADInplaceOrView below;
    if (self.is_cuda() != from.is_cuda()) {  // converted and expanded where it comes from
        const auto &host = self.is_cuda() ? from : self;
        const char *how = non_blocking && PinnedAllocator::owns(host.storage().data()) ? "copy, asynchronous" : "copy";
        tell(self.is_cuda() ? "to device" : "to host", how, self.numel() * self.element_size());
    } else {
        const bool doubles = self.scalar_type() == at::kDouble && self.numel() > 1;
        tell(doubles ? "float64 launch" : "launch", "aten::copy_", bytes_of(from) + bytes_of(self));
    }
    const auto source = from.is_cuda() ? on_host(from, false) : from;
    (self.is_cuda() ? on_host(self, true) : self).copy_(source);
    return self;
}
at::Tensor empty(
    c10::SymIntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>, std::optional<c10::Device>,
    std::optional<bool>, std::optional<at::MemoryFormat> format) {
    const c10::DispatchKeySet key(c10::DispatchKey::CUDA);
    const auto kind = c10::dtype_or_default(dtype);
    return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size), &device_allocator, key, kind, format);
}
at::Tensor empty_strided(
    c10::SymIntArrayRef size, c10::SymIntArrayRef stride, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
    std::optional<c10::Device>, std::optional<bool>) {
    return empty_on_device(C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), c10::dtype_or_default(dtype));
}
std::vector<int64_t> row_major(c10::IntArrayRef sizes) {
    std::vector<int64_t> found(sizes.size());
    int64_t step = 1;
    for (size_t i = sizes.size(); i-- > 0; step *= std::max<int64_t>(sizes[i], 1)) found[i] = step;
    return found;
}
const at::Tensor &resize_(const at::Tensor &self, c10::SymIntArrayRef size, std::optional<at::MemoryFormat>) {
    const auto wanted = C10_AS_INTARRAYREF_SLOW(size);
    if (self.sizes() == wanted) return self;
    const size_t bytes = (c10::multiply_integers(wanted) + self.storage_offset()) * self.element_size();
    auto *storage = self.storage().unsafeGetStorageImpl();
    if (bytes > storage->nbytes()) {
        auto data = device_allocator.allocate(bytes);
        if (storage->nbytes()) device_allocator.copy_data(data.get(), storage->data(), storage->nbytes());
        storage->set_data_ptr_noswap(std::move(data));
        storage->set_nbytes(bytes);
    }
    self.unsafeGetTensorImpl()->set_sizes_and_strides(wanted, row_major(wanted));
    return self;
}
at::Tensor &set_storage(
    at::Tensor &self, at::Storage storage, c10::SymInt offset, c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
    const auto sizes = C10_AS_INTARRAYREF_SLOW(size);
    auto strides = C10_AS_INTARRAYREF_SLOW(stride).vec();
    if (strides.size() < sizes.size()) strides = row_major(sizes);
    self.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(storage));
    self.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset.guard_int(__FILE__, __LINE__));
    return self;
}
at::Tensor &set_whole_storage(at::Tensor &self, at::Storage storage) {
    const c10::SymInt numbers(static_cast<int64_t>(storage.nbytes() / self.element_size())), one(1);
    return set_storage(self, std::move(storage), 0, c10::SymIntArrayRef(numbers), c10::SymIntArrayRef(one));
}
at::Tensor &set_tensor(at::Tensor &self, const at::Tensor &other) {
    return set_storage(self, other.storage(), other.storage_offset(), other.sym_sizes(), other.sym_strides());
}
TORCH_LIBRARY_IMPL(aten, CUDA, library) {
    library.impl("empty.memory_format", empty);
    library.impl("empty_strided", empty_strided);
    library.impl("copy_", copy_);
    library.impl("resize_", resize_);
    library.impl("set_.source_Storage_storage_offset", set_storage);
    library.impl("set_.source_Storage", set_whole_storage);
    library.impl("set_.source_Tensor", set_tensor);
}
// Fused attention is made of kernels that only a GPU has.
int64_t plain_attention(
    const at::Tensor &, const at::Tensor &, const at::Tensor &, const std::optional<at::Tensor> &, double, bool,
    std::optional<double>, bool) {
    return static_cast<int64_t>(sdp::SDPBackend::math);
}

}  // namespace
}  // namespace emulated

// ---- for Python -----------------------------------------------------------------------------------------------------

extern "C" {
// Returns what went wrong, or nothing.
const char *emulated_open() {
    static std::string wrong;
    try {
        emulated::pool.open();
        emulated::replace_hooks();
        c10::SetAllocator(c10::DeviceType::CUDA, &emulated::device_allocator, 1);
        at::native::_fused_sdp_choice_stub.set_cuda_dispatch_ptr(&emulated::plain_attention);
        TORCH_CHECK(at::detail::getCUDAHooks().hasCUDA(), "torch does not take the hooks");
    } catch (const std::exception &error) {
        wrong = error.what();
        return wrong.c_str();
    }
    return nullptr;
}
// Returns whether the operator exists, and now has a kernel for dense or for sparse tensors of the device.
int emulated_register(const char *name, const char *overload, int sparse, int strict, int waits) {
    static std::vector<c10::RegistrationHandleRAII> kept;
    const c10::OperatorName meant(name, overload);
    auto &all = c10::Dispatcher::singleton();
    const auto op = all.findSchema(meant);
    const auto key = sparse ? c10::DispatchKey::SparseCUDA : c10::DispatchKey::CUDA;
    if (!op || op->hasKernelForDispatchKey(key)) return 0;
    if (strict) emulated::strict.insert(c10::toString(meant));
    if (waits) emulated::waiting.insert(c10::toString(meant));
    auto kernel = sparse ? c10::KernelFunction::makeFromBoxedFunction<&emulated::run_sparse_on_host>()
                         : c10::KernelFunction::makeFromBoxedFunction<&emulated::run_on_host>();
    kept.push_back(all.registerImpl(meant, key, std::move(kernel), std::nullopt, nullptr, "emulated device"));
    return 1;
}
void emulated_observe(emulated::Observer told) { emulated::observer = told; }
int64_t emulated_live_bytes() { return emulated::pool.live(); }
int64_t emulated_peak_bytes() { return emulated::pool.peak(); }
void emulated_forget_peak() { emulated::pool.forget_peak(); }
}
