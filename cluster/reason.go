package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/holdfast-kv/holdfast/rpc"
)

// absence returns why a node of --peers cannot be asked, and the remedy if the
// cause is not simply that the node has not been started yet.
func absence(p Peer, err error) string {
	var dns *net.DNSError
	switch {
	case errors.Is(err, rpc.ErrSecret):
		return "cluster secret does not match"
	case errors.Is(err, rpc.ErrNotPeer):
		return noPeerPort(p, rpc.WhatAnswers(err))
	case errors.Is(err, rpc.ErrHandshakeTimeout) && servesClients(p.Addr):
		return noPeerPort(p, "a client port (Redis protocol) answers")
	case errors.As(err, &dns):
		return fmt.Sprintf("cannot resolve %s: %s; correct --peers or the DNS", dns.Name, dns.Err)
	}
	return shortReason(err)
}

func noPeerPort(p Peer, answers string) string {
	return p.Addr + " is no peer port: " + answers + "; --peers needs the --peer-addr of each node, " +
		"not its --client-addr or --http-addr"
}

// servesClients reports whether a Redis server answers at an address. A client
// port does not answer the handshake of a node, because it waits for the end of
// a line.
func servesClients(addr string) bool {
	conn, err := net.DialTimeout("tcp", addr, statusLimit)
	if err != nil {
		return false
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(statusLimit)); err != nil {
		return false
	}
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	var first [1]byte
	_, err = io.ReadFull(conn, first[:])
	return err == nil && (first[0] == '+' || first[0] == '-')
}

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
