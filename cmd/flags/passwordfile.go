package flags

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
)

// maxSecret is the maximum size, in bytes, of a file with a password or a token.
const maxSecret = 4096

// ReadSecret returns the content of a file that a flag names, without the
// line break at its end. The file contains a password or a token.
func ReadSecret(flag, path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("--%s: %w", flag, err)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	if err := errors.Join(err, f.Close()); err != nil {
		return "", fmt.Errorf("--%s: %w", flag, err)
	}
	if len(text) > maxSecret {
		return "", fmt.Errorf("--%s: %s has more than %d bytes: is it the right file?", flag, path, maxSecret)
	}
	text = bytes.TrimSuffix(bytes.TrimSuffix(text, []byte("\n")), []byte("\r"))
	if len(text) == 0 {
		return "", fmt.Errorf("--%s: %s is empty", flag, path)
	}
	if bytes.ContainsAny(text, "\r\n") {
		return "", fmt.Errorf("--%s: %s has several lines: it must contain only the password or the token", flag, path)
	}
	return string(text), nil
}
