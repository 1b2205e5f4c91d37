package main

import (
	"errors"

	"github.com/holdfast-kv/holdfast/cmd/flags"
)

// readPassword sets requirePass from --requirepass-file.
func (o *serveOptions) readPassword() error {
	if o.requirePassFile == "" {
		return nil
	}
	if o.requirePass != "" {
		return errors.New("--requirepass and --requirepass-file are both set: use one of them")
	}
	var err error
	o.requirePass, err = flags.ReadSecret("requirepass-file", o.requirePassFile)
	return err
}
