package cluster

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
)

// shortReason returns why a request to a member failed, in a few words and
// without the addresses that an error of package net contains: "connection
// refused", "no answer within 1s".
func shortReason(err error) string {
	var number syscall.Errno
	var dns *net.DNSError
	var timeout net.Error
	switch {
	case errors.As(err, &number):
		return number.Error()
	case errors.As(err, &dns):
		return dns.Err + ": " + dns.Name
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded),
		errors.As(err, &timeout) && timeout.Timeout():
		return "no answer within " + statusLimit.String()
	}
	return err.Error()
}
