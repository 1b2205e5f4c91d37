package dashboard

import (
	"net/http"
	"testing"
)

// replyError is an error reply of a node, as go-redis returns it.
type replyError string

func (e replyError) Error() string { return string(e) }

// RedisError implements redis.Error.
func (replyError) RedisError() {}

// TestExplain_Replies checks the status codes for error replies of the node.
func TestExplain_Replies(t *testing.T) {
	for text, want := range map[string]int{
		"ERR too many failed logins from this address, try again later": http.StatusTooManyRequests,
		"ERR syntax error": http.StatusBadRequest,
		"WRONGPASS invalid username-password pair or user is disabled.": http.StatusUnauthorized,
		"NOAUTH Authentication required.":                               http.StatusUnauthorized,
		"NOPERM this user has no permissions to run the 'get' command":  http.StatusForbidden,
		"CLUSTERDOWN the cluster has no leader":                         http.StatusServiceUnavailable,
	} {
		if code, e := explain(replyError(text)); code != want || e.Error == "" {
			t.Errorf("%s: code %d with the text %q, want code %d", text, code, e.Error, want)
		}
	}
}
