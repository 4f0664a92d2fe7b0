"""llama.cpp through ctypes (llama-cpp-python), as far as the checks need it: nothing of its sampling or chat."""

import ctypes

import llama_cpp as L
import numpy as np

F32_CACHE = 0  # ggml_type; the default of f16 would hide what the weights give
QUIET = L.llama_log_callback(lambda level, text, data: None)
LINES = []
KEEP = L.llama_log_callback(lambda level, text, data: LINES.append(text.decode("utf-8", "replace")) if level >= 3 else None)
L.llama_log_set(KEEP, ctypes.c_void_p(0))
L.llama_backend_init()


class Model:
    def __init__(self, path, vocab_only=False):
        params = L.llama_model_default_params()
        params.vocab_only = vocab_only
        params.use_mmap = False
        LINES.clear()
        self.model = L.llama_model_load_from_file(str(path).encode(), params)
        if not self.model:
            raise RuntimeError("llama.cpp does not load it: " + "".join(LINES)[-600:])
        self.vocab = L.llama_model_get_vocab(self.model)
        self.context = None

    def close(self):
        if self.context:
            L.llama_free(self.context)
        L.llama_model_free(self.model)

    def tokens(self, text, special=True, parse=False):
        data = text.encode()
        out = (L.llama_token * (len(data) + 8))()
        n = L.llama_tokenize(self.vocab, data, len(data), out, len(out), special, parse)
        assert n >= 0, n
        return list(out[:n])

    def stops(self, token):
        return bool(L.llama_vocab_is_eog(self.vocab, token))

    def open(self, tokens=512):
        params = L.llama_context_default_params()
        params.n_ctx = tokens
        params.n_batch = params.n_ubatch = tokens
        params.type_k = params.type_v = F32_CACHE
        params.flash_attn_type = 0
        params.n_threads = params.n_threads_batch = 2
        self.context = L.llama_init_from_model(self.model, params)
        if not self.context:
            raise RuntimeError("llama.cpp makes no context: " + "".join(LINES)[-600:])

    def adapt(self, path, scale=1.0):
        adapter = L.llama_adapter_lora_init(self.model, str(path).encode())
        if not adapter:
            raise RuntimeError("llama.cpp does not load the adapter: " + "".join(LINES)[-600:])
        adapters, scales = (L.llama_adapter_lora_p_ctypes * 1)(adapter), (ctypes.c_float * 1)(scale)
        assert L.llama_set_adapters_lora(self.context, adapters, 1, scales) == 0

    def logits(self, ids):
        """[len(ids), V], of a new sequence."""
        L.llama_memory_clear(L.llama_get_memory(self.context), True)
        batch = L.llama_batch_init(len(ids), 0, 1)
        for i, token in enumerate(ids):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, i, 1, 1
            batch.seq_id[i][0] = 0
        batch.n_tokens = len(ids)
        assert L.llama_decode(self.context, batch) == 0
        width = L.llama_vocab_n_tokens(self.vocab)
        rows = [np.ctypeslib.as_array(L.llama_get_logits_ith(self.context, i), (width,)).copy() for i in range(len(ids))]
        L.llama_batch_free(batch)
        return np.stack(rows)

    def greedy(self, ids, n):
        """n tokens behind ids, the largest logit each."""
        out = []
        logits = self.logits(ids)[-1]
        for _ in range(n):
            out.append(int(logits.argmax()))
            token = (L.llama_token * 1)(out[-1])
            assert L.llama_decode(self.context, L.llama_batch_get_one(token, 1)) == 0
            width = L.llama_vocab_n_tokens(self.vocab)
            logits = np.ctypeslib.as_array(L.llama_get_logits_ith(self.context, -1), (width,))
        return out


FILE_TYPES = {"q8_0": 7, "q4_k_s": 14, "q4_k_m": 15, "q5_k_m": 17, "q6_k": 18}  # llama.h, enum llama_ftype


def quantise(source, target, name):
    params = L.llama_model_quantize_default_params()
    params.ftype = FILE_TYPES[name]
    params.nthread = 2
    assert L.llama_model_quantize(str(source).encode(), str(target).encode(), ctypes.byref(params)) == 0
