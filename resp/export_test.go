package resp

import "time"

// SetMaxEventWait sets how long connections wait for events that they caused.
func SetMaxEventWait(s *Server, d time.Duration) { s.maxEventWait = d }

// StopMatchClock stops the clock of the matching budget, so that the budget is
// not refilled.
func StopMatchClock(s *Server) { s.hub.SetMatchClock(func() time.Time { return time.Unix(1, 0) }) }

// ConfirmUsers makes s trust the users that it knows, as after the first read of
// the users of the cluster.
func ConfirmUsers(s *Server) { s.accounts.confirmed.Store(true) }
