package rdb

import (
	"encoding/binary"
	"hash/crc64"
)

// A payload, the reply to DUMP, ends with a trailer. The trailer has the
// version of the format and a checksum, so that RESTORE can refuse a payload
// that is damaged or too new.
const (
	payloadVersion = 10 // the version of the RDB format of Redis 7.0

	// TrailerSize is the size of the trailer in bytes: version and checksum,
	// both little-endian.
	TrailerSize = 2 + 8
)

// jones is the table of the CRC-64 that Redis uses: the polynomial of David T.
// Jones, here with its lowest term first.
var jones = crc64.MakeTable(0x95ac9329ac4bc9b5)

// Checksum adds the bytes of b to the checksum sum and returns the new
// checksum. The first sum is 0. Unlike package crc64, Checksum does not invert
// the result.
func Checksum(sum uint64, b []byte) uint64 { return ^crc64.Update(^sum, jones, b) }

// crc64Jones returns the checksum of b.
func crc64Jones(b []byte) uint64 { return Checksum(0, b) }

// Seal appends the trailer to a body. The result may share memory with
// body.
func Seal(body []byte) []byte {
	b := binary.LittleEndian.AppendUint16(body, payloadVersion)
	return binary.LittleEndian.AppendUint64(b, crc64Jones(b))
}

// Open returns the body of a payload without copying it. ok is false if
// the checksum is wrong or the version is newer than payloadVersion.
func Open(b []byte) (body []byte, ok bool) {
	n := len(b) - TrailerSize
	if n < 0 || binary.LittleEndian.Uint16(b[n:]) > payloadVersion ||
		binary.LittleEndian.Uint64(b[n+2:]) != crc64Jones(b[:n+2]) {
		return nil, false
	}
	return b[:n], true
}
