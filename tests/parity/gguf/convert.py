#!/usr/bin/env python3
"""llama.cpp's converter on one folder, in f16: convert.py LLAMA_CPP_SOURCE FOLDER FILE. Any pre-tokenizer is called gpt-2:
the converter knows published tokenizers only, by a hash."""

import sys

source, folder, file = sys.argv[1:]
sys.path[:0] = [source, source + "/gguf-py"]
import conversion.base  # noqa: E402

conversion.base.TextModel.get_vocab_base_pre = lambda self, tokenizer: "gpt-2"
conversion.base.TextModel._set_vocab_sentencepiece = lambda self, *rest, **more: self._set_vocab_gpt2()
sys.argv = ["convert", folder, "--outfile", file, "--outtype", "f16"]
exec(compile(open(source + "/convert_hf_to_gguf.py").read(), "convert_hf_to_gguf.py", "exec"))
