package migrate

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/fsm/rdb"
)

// file returns an RDB file with a head, the parts and a checksum.
func file(version string, parts ...string) []byte {
	b := []byte(rdbMagic + version + strings.Join(parts, "") + "\xff")
	return binary.LittleEndian.AppendUint64(b, rdb.Checksum(0, b))
}

// str returns a string of an RDB file.
func str(s string) string { return string(rune(len(s))) + s }

func scanAll(b []byte, keepLimit int) (items []item, codes []string, err error) {
	s, err := newScanner(bytes.NewReader(b), keepLimit)
	if err != nil {
		return nil, nil, err
	}
	_, err = s.scan(visitor{
		key:      func(it item) error { items = append(items, it); return nil },
		function: func(code string) error { codes = append(codes, code); return nil },
	})
	return items, codes, err
}

// sample is a file with two databases, a time to live, a function, the value and
// the data of a module, and a value that exceeds a limit of 50 bytes.
func sample() []byte {
	const id = "\x81\x00\x00\x00\x00\x00\x00\x04\x00"
	return file("0010", "\xfa"+str("redis-ver")+str("7.0.15"),
		"\xf7"+id+"\x02\x01"+"\x05"+str("aux")+"\x00",
		"\xf5"+str("#!lua name=lib"),
		"\xfe\x00\xfb\x02\x01", "\x00"+str("a")+str("v"),
		"\xfc\x10\x27\x00\x00\x00\x00\x00\x00\xf8\x05\xf9\x07\x02"+str("set")+"\x02"+str("x")+"\xc0\x07",
		"\x07"+str("mod")+id+"\x02\x05\x05"+str("part")+"\x00",
		"\xfe\x03", "\x00"+str("long")+str(strings.Repeat("x", 60)))
}

func TestScan(t *testing.T) {
	items, codes, err := scanAll(sample(), 50)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(codes, []string{"#!lua name=lib"}) {
		t.Errorf("the scanner found the functions %q, want one library", codes)
	}
	if len(items) != 4 {
		t.Fatalf("the scanner found %d keys, want 4", len(items))
	}
	if got := items[0]; got.key != "a" || got.db != 0 || got.life.volatile ||
		!bytes.Equal(got.payload, rdb.Seal([]byte("\x00\x01v"))) {
		t.Errorf("the first key is not as in the file: %+v", got)
	}
	if got := items[1]; got.key != "set" || !got.life.volatile || got.life.unixMs != 10000 ||
		!bytes.Equal(got.payload, rdb.Seal([]byte("\x02\x02\x01x\xc0\x07"))) {
		t.Errorf("the second key is not as in the file: %+v", got)
	}
	if got := items[2]; got.payload != nil || !strings.Contains(got.reason, "module of Redis (AAAAAAAAB)") {
		t.Errorf("the key of a module has a payload, or lacks the reason with the module's name: %+v", got)
	}
	if got := items[3]; got.payload != nil || got.db != 3 || !strings.Contains(got.reason, "an import accepts 50") {
		t.Errorf("the key with a long value is not as wanted: %+v", got)
	}
}

// TestScan_Damaged cuts a file off at each length and changes each of its bytes.
// The scanner must notice every change.
func TestScan_Damaged(t *testing.T) {
	whole := sample()
	var damaged *FileError
	for n := range whole {
		if _, _, err := scanAll(whole[:n], 50); !errors.As(err, &damaged) {
			t.Errorf("file cut off after %d of %d bytes: got %v, want a FileError", n, len(whole), err)
		}
		b := bytes.Clone(whole)
		b[n] ^= 0x11
		if _, _, err := scanAll(b, 50); !errors.As(err, &damaged) {
			t.Errorf("file with byte %d changed: got %v, want a FileError", n, err)
		}
	}
	for name, b := range map[string][]byte{
		"a newer version": file("0011"), "more bytes": append(file("0010"), 'x'), "another file": []byte("HFBACKUP"),
		"an unknown type": file("0010", "\x63"+str("k")+str("v")),
	} {
		if _, _, err := scanAll(b, 50); !errors.As(err, &damaged) {
			t.Errorf("%s: got %v, want a FileError", name, err)
		}
	}
}

func FuzzScan(f *testing.F) {
	f.Add(sample())
	f.Add(file("0009", "\x0f"+str("x")+"\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var damaged *FileError
		if _, _, err := scanAll(b, 50); err != nil && !errors.As(err, &damaged) {
			t.Error(err)
		}
	})
}

// TestRepack checks which payloads of newer versions of Redis repack accepts.
func TestRepack(t *testing.T) {
	newer := func(body string) []byte {
		b := binary.LittleEndian.AppendUint16([]byte(body), 12)
		return binary.LittleEndian.AppendUint64(b, rdb.Checksum(0, b))
	}
	got, reason := repack(newer("\x00\x01v"))
	if reason != "" || !bytes.Equal(got, rdb.Seal([]byte("\x00\x01v"))) {
		t.Errorf("a string of version 12: got %q (reason %s), want it repacked", got, reason)
	}
	damaged := newer("\x00\x01v")
	damaged[2] = 'w'
	for want, payload := range map[string][]byte{
		"newer than 7.0": newer("\x14\x00"), "module": newer("\x07\x00"), "wrong checksum": damaged, "damaged": nil,
	} {
		if got, reason := repack(payload); got != nil || !strings.Contains(reason, want) {
			t.Errorf("want the reason %s, got the payload %q and the reason %s", want, got, reason)
		}
	}
}

// TestLifetime checks that a key's remaining time to live does not become
// shorter on its way to the target.
func TestLifetime(t *testing.T) {
	begun := time.Now()
	l := lifetime{volatile: true, end: begun.Add(1500 * time.Millisecond)}
	if got := l.at(targetClock{unixMs: 1000, asked: begun.Add(time.Second)}); got != 1500 {
		t.Errorf("the key ends at %d, want 1500", got)
	}
	if got := (lifetime{}).at(targetClock{unixMs: 1000, asked: begun}); got != 0 {
		t.Errorf("a key without a time to live ends at %d, want 0", got)
	}
	if got := (lifetime{volatile: true, unixMs: 7}).at(targetClock{unixMs: 1000, asked: begun}); got != 7 {
		t.Errorf("a key of a file ends at %d, want 7", got)
	}
}
