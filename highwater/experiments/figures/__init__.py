"""The figures of our own documents: rates of the auditor, the simulator, trace validation and the fuzzer."""
