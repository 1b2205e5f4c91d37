package slots

import "testing"

func TestSlotOf(t *testing.T) {
	for key, want := range map[string]int{
		"": 0, "123456789": 0x31c3, "foo": 12182, "foo{bar}": 5061, "bar": 5061, "{bar}x{y}": 5061,
	} {
		if got := Of([]byte(key)); got != want {
			t.Errorf("%q: slot %d, want %d", key, got, want)
		}
	}
	if Of([]byte("{}foo")) == Of([]byte("foo")) || Of([]byte("{}")) == 0 {
		t.Error("with an empty tag, the slot must depend on the whole key")
	}
}
