package fsm

import (
	"encoding/binary"
	"hash/crc64"
)

// What DUMP and its kin hand out ends in a trailer that tells whether the bytes
// before it are whole and of a version that can be read.
const (
	payloadVersion = 10    // of Redis 7.0's RDB format
	payloadTrailer = 2 + 8 // version and checksum, both little endian
)

// jones is the table of the CRC-64 of Redis: the polynomial of David T. Jones,
// here with its lowest term first.
var jones = crc64.MakeTable(0x95ac9329ac4bc9b5)

// crc64Jones differs from what package crc64 computes in that it begins with 0
// and does not invert the result.
func crc64Jones(b []byte) uint64 { return ^crc64.Update(^uint64(0), jones, b) }

// sealPayload appends the trailer to a body, which it may do in place.
func sealPayload(body []byte) []byte {
	b := binary.LittleEndian.AppendUint16(body, payloadVersion)
	return binary.LittleEndian.AppendUint64(b, crc64Jones(b))
}

// openPayload returns what sealPayload was given, without a copy. It is not ok
// if the checksum is wrong or the version newer than ours.
func openPayload(b []byte) (body []byte, ok bool) {
	n := len(b) - payloadTrailer
	if n < 0 || binary.LittleEndian.Uint16(b[n:]) > payloadVersion || binary.LittleEndian.Uint64(b[n+2:]) != crc64Jones(b[:n+2]) {
		return nil, false
	}
	return b[:n], true
}
