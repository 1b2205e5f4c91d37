package rpc

import (
	"bytes"
	"io"
)

// ReadHello reads a dialer's prelude. It returns the hello and the bytes that
// it has read. It is for a proxy that treats connections by node and service,
// and has to forward the bytes.
func ReadHello(r io.Reader) (Hello, []byte, error) {
	var said bytes.Buffer
	h, _, err := readPrelude(io.TeeReader(r, &said))
	return h, said.Bytes(), err
}
