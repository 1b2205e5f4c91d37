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
func (e *environment) absence(p Peer, err error) string {
	var dns *net.DNSError
	switch {
	case errors.Is(err, rpc.ErrSecret):
		return "cluster secret does not match"
	case errors.Is(err, rpc.ErrNotPeer):
		return noPeerPort(p, rpc.WhatAnswers(err))
	case errors.As(err, &dns):
		return fmt.Sprintf("cannot resolve %s: %s; correct --peers or the DNS", dns.Name, dns.Err)
	}
	if errors.Is(err, rpc.ErrHandshakeTimeout) {
		if answers := e.silentPort(p.Addr); answers != "" {
			return noPeerPort(p, answers)
		}
	}
	return shortReason(err)
}

func noPeerPort(p Peer, answers string) string {
	return p.Addr + " is no peer port: " + answers + "; --peers needs the --peer-addr of each node, " +
		"not its --client-addr or --http-addr"
}

// silentPort returns what answers at an address where the handshake of a node
// gets no answer: a client port and an HTTP port wait for the end of a line. It
// returns "" if neither of them answers.
func (e *environment) silentPort(addr string) string {
	ctx, cancel := context.WithTimeout(e.ctx, statusLimit)
	defer cancel()
	dial := e.cfg.PeerDialer
	if dial == nil {
		dial = func(ctx context.Context, addr string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		}
	}
	conn, err := dial(ctx, addr)
	if err != nil {
		return ""
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(statusLimit)); err != nil {
		return ""
	}
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return ""
	}
	var first [1]byte
	if _, err := io.ReadFull(conn, first[:]); err != nil {
		return ""
	}
	switch first[0] {
	case '+', '-':
		return "a client port (Redis protocol) answers"
	case 'H': // HTTP/1.1 400 Bad Request
		return "an HTTP port answers"
	}
	return ""
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
