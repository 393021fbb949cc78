package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime/coverage"
	"strings"
)

// serveCoverage answers every byte on a connection with the counters of this process, if more units were executed since
// the last answer: a big-endian length (0: no more than before) and the contents of a counter file. It also keeps them
// in a file of the folder, where `go tool covdata` finds them after a crash. Works only if built with -cover.
func serveCoverage(folder string) error {
	if err := coverage.WriteMetaDir(folder); err != nil {
		return err
	}
	found, err := filepath.Glob(filepath.Join(folder, "covmeta.*"))
	if err != nil || len(found) == 0 {
		return fmt.Errorf("no covmeta file in %s", folder)
	}
	name := fmt.Sprintf("covcounters.%s.%d.1", strings.TrimPrefix(filepath.Ext(found[0]), "."), os.Getpid())
	listener, err := net.Listen("unix", filepath.Join(folder, fmt.Sprintf("%d.sock", os.Getpid())))
	if err != nil {
		return err
	}
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go answer(connection, filepath.Join(folder, name))
		}
	}()
	return nil
}

func answer(connection net.Conn, path string) {
	defer connection.Close()
	last, asked := 0, make([]byte, 1)
	for {
		if _, err := connection.Read(asked); err != nil {
			return
		}
		var counters bytes.Buffer
		if err := coverage.WriteCounters(&counters); err != nil {
			return
		}
		var sent []byte
		if executed := executedUnits(counters.Bytes()); executed > last {
			last, sent = executed, counters.Bytes()
			os.WriteFile(path+".tmp", sent, 0o644)
			os.Rename(path+".tmp", path)
		}
		connection.Write(binary.BigEndian.AppendUint32(nil, uint32(len(sent))))
		connection.Write(sent)
	}
}

// executedUnits counts the counters that are not zero, in the format of internal/coverage/defs.go: a header of 32 bytes,
// that of the only segment (number of functions, lengths of two tables), the tables, then for each function the number
// of its counters, package, function, and the counters, all ULEB128.
func executedUnits(data []byte) int {
	functions := binary.LittleEndian.Uint64(data[32:])
	at := 48 + int(binary.LittleEndian.Uint32(data[40:])+binary.LittleEndian.Uint32(data[44:]))
	at = (at + 3) &^ 3
	executed := 0
	next := func() uint64 {
		value, size := binary.Uvarint(data[at:])
		at += size
		return value
	}
	for range functions {
		counters := next()
		next()
		next()
		for range counters {
			if next() > 0 {
				executed++
			}
		}
	}
	return executed
}
