package resp

import "time"

// SetMaxHear sets how long connections wait for events that they caused.
func SetMaxHear(s *Server, d time.Duration) { s.maxHear = d }

// StopMatchClock stops the clock of the matching budget, so that it is not
// refilled.
func StopMatchClock(s *Server) { s.hub.SetMatchClock(func() time.Time { return time.Unix(1, 0) }) }
