package dashboard

import (
	"testing"

	"github.com/holdfast-kv/holdfast/lock/listing"
)

func TestTextBytes(t *testing.T) {
	locks := []listing.Lock{
		{"key": "12345", "token": int64(9), "waiters": []listing.Lock{{"owner": "123"}, {"owner": "1"}}},
		{"key": "", "holders": []listing.Lock{{"owner": "12", "meta": "1234"}}},
	}
	if got := textBytes(locks); got != 15 {
		t.Errorf("%d bytes, want 15", got)
	}
}
