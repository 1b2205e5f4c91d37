package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/holdfast-kv/holdfast/cluster/outcome"
	"github.com/holdfast-kv/holdfast/rpc"
)

// These are errors of a change of the members. Each of them means that nothing
// was changed. Such a change can also fail with a refusal that has its own
// text, or with outcome.NewChangeUnknown.
var (
	errNotLed      = outcome.NewNotExecuted(true, "this node does not lead")
	errChanging    = outcome.NewNotExecuted(true, "another change of the members is under way")
	errUnconfirmed = outcome.NewNotExecuted(true, "the members were not confirmed: no entry was committed in time")
	errNoAnswers   = outcome.NewNotExecuted(true, "some voters did not have enough time to answer")
	errMoved       = outcome.NewNotExecuted(true, "the members have changed since they were checked")
)

// ErrStaleSession means that the cluster knows a later start of this node, or
// groups of this start that this process has not sent. An older copy of the data
// directory was restored, or two processes use copies of it.
var ErrStaleSession = errors.New("the cluster knows a later start of this node: " +
	"was its data directory copied or restored?")

// Errors that keep a node from starting or joining.
var (
	// ErrWiped means that the data directory is empty and the node has not
	// asked to join, but the node is a voter of the cluster. So the record of
	// its votes is lost.
	ErrWiped = errors.New("data directory is empty, but the cluster knows this node as a member")
	// ErrAlive means that the directory is empty and another process runs under
	// this node's id.
	ErrAlive = errors.New("another process runs under this node's id")
	// ErrPeersDiffer means that the nodes were started with different --peers.
	ErrPeersDiffer = errors.New("nodes were started with different --peers")
	// ErrOtherCluster means that a peer belongs to another cluster.
	ErrOtherCluster = errors.New("peer belongs to another cluster")
)

// unreached returns the error of a change that was not made because the request
// for it did not reach the leader.
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

// absence returns why this node cannot ask another node of --peers. If the
// reason suggests a remedy, the text contains the remedy. A refused connection
// suggests none, because the other node may simply not have been started yet.
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
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
		answer := "does not"
		if e.cfg.PeerDialer != nil {
			answer = "does"
		}
		return "it closed the connection during the handshake; does its peer port use TLS? This node " + answer
	}
	return shortReason(err)
}

func noPeerPort(p Peer, answers string) string {
	return p.Addr + " is not a peer port: " + answers + "; --peers needs the --peer-addr of each node, " +
		"not its --client-addr or --http-addr"
}

// silentPort returns which kind of port answers at an address where the
// handshake between nodes got no answer. A client port and an HTTP port do not
// answer the handshake, because they wait for the end of a line. silentPort
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
	var refused *rpc.RefusedError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &refused):
		return refused.Text
	case errors.As(err, &certificate):
		return certificate.Error()
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
