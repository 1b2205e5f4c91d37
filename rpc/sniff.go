package rpc

import (
	"bytes"
	"io"
)

// ReadHello reads a dialer's prelude, and returns the hello and the bytes that
// it has read. A proxy uses it to learn the node and the service of a
// connection; it must then forward the bytes.
func ReadHello(r io.Reader) (Hello, []byte, error) {
	var read bytes.Buffer
	h, _, err := readPrelude(io.TeeReader(r, &read))
	return h, read.Bytes(), err
}
