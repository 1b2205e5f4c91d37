package rpc

import (
	"bytes"
	"io"
)

// ReadHello reads the first words of a dialler and returns what it says of
// itself and its bytes, to be passed on: for a proxy that treats connections by
// who opens them and what for.
func ReadHello(r io.Reader) (Hello, []byte, error) {
	var said bytes.Buffer
	h, _, err := readPrelude(io.TeeReader(r, &said))
	return h, said.Bytes(), err
}
