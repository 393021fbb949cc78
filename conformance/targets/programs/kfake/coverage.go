package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime/coverage"
	"time"
)

// serveCoverage listens on <pid>.sock of the folder. It answers every byte with the counters of this process, if more of
// them are above zero than in the last answer: a big-endian length (0: no more than before) and the contents of a counter
// file. It also keeps them in a file of the folder, where `go tool covdata` finds them after a crash. Works only if the
// program was built with -cover.
func serveCoverage(folder string) error {
	if err := coverage.WriteMetaDir(folder); err != nil {
		return err
	}
	socket := filepath.Join(folder, fmt.Sprintf("%d.sock", os.Getpid()))
	os.Remove(socket) // of a killed process that had the same id
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	started := time.Now().UnixNano()
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go answer(connection, folder, started)
		}
	}()
	return nil
}

func answer(connection net.Conn, folder string, started int64) {
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
		data, sent := counters.Bytes(), []byte(nil)
		if executed := executedUnits(data); executed > last {
			last, sent = executed, data
			// The name has the hash of the build, which is in the header of the file, too.
			name := fmt.Sprintf("covcounters.%x.%d.%d", data[8:24], os.Getpid(), started)
			keep(filepath.Join(folder, name), data)
		}
		connection.Write(binary.BigEndian.AppendUint32(nil, uint32(len(sent))))
		connection.Write(sent)
	}
}

func keep(path string, data []byte) {
	if err := os.WriteFile(path+".tmp", data, 0o644); err == nil {
		os.Rename(path+".tmp", path)
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
