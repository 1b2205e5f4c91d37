package serve

import (
	"errors"

	"github.com/holdfast-kv/holdfast/cmd/flags"
)

// readPassword sets requirePass from --requirepass-file.
func (o *options) readPassword() error {
	if o.access.requirePassFile == "" {
		return nil
	}
	if o.access.requirePass != "" {
		return errors.New("--requirepass and --requirepass-file are both set: use one of them")
	}
	var err error
	o.access.requirePass, err = flags.ReadSecret("requirepass-file", o.access.requirePassFile)
	return err
}
