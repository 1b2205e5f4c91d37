package flags

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
)

// maxSecret is the maximum size of a password file in bytes.
const maxSecret = 4096

// ReadSecret returns the content of a file that a flag names, without the
// line break at its end.
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
		return "", fmt.Errorf("--%s: %s has more than %d bytes: is it a password file?", flag, path, maxSecret)
	}
	text = bytes.TrimSuffix(bytes.TrimSuffix(text, []byte("\n")), []byte("\r"))
	if len(text) == 0 {
		return "", fmt.Errorf("--%s: %s is empty", flag, path)
	}
	if bytes.ContainsAny(text, "\r\n") {
		return "", fmt.Errorf("--%s: %s has several lines: the file must contain only the password", flag, path)
	}
	return string(text), nil
}
