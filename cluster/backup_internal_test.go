package cluster

import (
	"math"
	"strings"
	"testing"
)

func TestRoomForRestore(t *testing.T) {
	const mb = 1 << 20
	for _, tt := range []struct {
		held, size int64
		memory     uint64
		says       string // "" for no error
	}{
		{0, 100 * mb, 0, ""},
		{0, 70 * mb, 256 * mb, ""},
		{0, 100 * mb, 256 * mb, "the restore needs about 250MiB of memory on every node, but the data of n2 can use only 192MiB: " +
			"give the nodes more memory"},
		{128 * mb, 90 * mb, 256 * mb, "or delete their data first (FLUSHALL)"},
		{128 * mb, 90 * mb, 512 * mb, ""},
		{70 * mb, math.MaxInt64, 256 * mb, "or delete their data first (FLUSHALL)"},
		{0, math.MaxInt64/2 + 1, 256 * mb, "more memory"},
		{0, -1, 256 * mb, "is negative"},
		{0, DefaultMaxMemory(256 * mb), 256 * mb, ""}, // the backup of a full cluster of the same size
		{70 * mb, 64 * mb, 256 * mb, "or delete their data first (FLUSHALL)"},
		{0, DefaultMaxMemory(64 * mb), 64 * mb, ""},
		// An earlier limit left no room for the program itself. With that
		// limit, this restore was accepted, and the kernel ended three nodes
		// with 64 MiB of memory.
		{0, 17 * mb, 64 * mb, "the restore needs about 42.5MiB of memory on every node, but the data of n2 can use only 16MiB"},
		{0, mb, 32 * mb, "the data of n2 can use only 0B"},
	} {
		st := NodeStatus{ID: "n2"}
		st.DatasetBytes, st.ProcessMemory = tt.held, tt.memory
		err := RoomForRestore(st, tt.size, nil)
		if tt.says == "" && err != nil || tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says)) {
			t.Errorf("%+v: RoomForRestore returned the error %v", tt, err)
		}
	}
}

// TestRoomForRestore_SmallKeys checks that a backup with too many small keys is
// refused, and that a backup of a full cluster of the same size is still
// accepted.
func TestRoomForRestore_SmallKeys(t *testing.T) {
	const mb = 1 << 20
	st := NodeStatus{ID: "n2"}
	st.ProcessMemory = 256 * mb
	// A million plain locks: their file has 75 MB, and their state takes 220 MB.
	if err := RoomForRestore(st, 75_000_000, map[string]int{"string": 1_000_000}); err == nil {
		t.Error("RoomForRestore accepted a backup that does not fit in the memory")
	}
	for kind, key := range map[string]struct{ file, memory int }{"string": {75, 230}, "hash": {45, 335}, "set": {30, 380}} {
		n := int(DefaultMaxMemory(st.ProcessMemory)) / key.memory
		if err := RoomForRestore(st, int64(n*key.file), map[string]int{kind: n}); err != nil {
			t.Errorf("a backup with %d keys of type %s was refused: %v", n, kind, err)
		}
	}
}

// TestDefaultMaxMemory checks that the default is 30 % of the memory, less if
// there is little memory, and never 0, which would mean no limit.
func TestDefaultMaxMemory(t *testing.T) {
	const mb = 1 << 20
	for memory, want := range map[uint64]int64{512 * mb: 1536 * mb / 10, 192 * mb: 576 * mb / 10, 128 * mb: 32 * mb,
		64 * mb: 64 * mb / 10, 48 * mb: mb, 0: mb} {
		if got := DefaultMaxMemory(memory); got != want {
			t.Errorf("DefaultMaxMemory(%d) = %d, want %d", memory, got, want)
		}
	}
}
