package resp

import "time"

// SetMaxHear changes how long connections wait for events that they caused.
func SetMaxHear(s *Server, d time.Duration) { s.maxHear = d }
