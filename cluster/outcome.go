package cluster

import (
	"errors"

	"github.com/holdfast-kv/holdfast/cluster/outcome"
)

// unreached returns the error of a change that was not made because the leader
// could not be asked for it.
func unreached(leader string, why error) error {
	return outcome.NewNotExecuted(true, "the leader "+leader+" cannot be reached: "+why.Error())
}

// readFailed returns the error of a failed read. A read has no effect, so its
// outcome is "not executed".
func readFailed(err error) error {
	var o *outcome.Error
	if err == nil || errors.As(err, &o) {
		return err
	}
	return outcome.NewNotExecuted(false, err.Error())
}
