package serve

import "testing"

func TestAnnouncedClient(t *testing.T) {
	for _, tt := range []struct{ client, peer, want string }{
		{"10.0.0.1:6379", "10.0.0.2:7379", "10.0.0.1:6379"},
		{"0.0.0.0:6379", "10.0.0.2:7379", "10.0.0.2:6379"},
		{":6379", "n1.example.org:7379", "n1.example.org:6379"},
		{"[::]:6379", "[fd00::1]:7379", "[fd00::1]:6379"},
		{"0.0.0.0:6379", "0.0.0.0:7379", "0.0.0.0:6379"},
		{"localhost:6379", "10.0.0.2:7379", "localhost:6379"},
	} {
		if got := announcedClient(tt.client, tt.peer); got != tt.want {
			t.Errorf("%s with the peer address %s: %s, want %s", tt.client, tt.peer, got, tt.want)
		}
	}
}
