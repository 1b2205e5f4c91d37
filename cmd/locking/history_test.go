package locking

import (
	"strings"
	"testing"
	"time"
)

func TestParseTime(t *testing.T) {
	zone := time.FixedZone("zone", 3600)
	now := time.Date(2026, 11, 26, 14, 0, 0, 0, zone)
	for text, want := range map[string]string{
		"14:00":                     "2026-11-26T14:00:00+01:00",
		"13:59:59.5":                "2026-11-26T13:59:59.5+01:00",
		"14:03:07":                  "2026-11-25T14:03:07+01:00",
		"2026-11-26 14:03:07":       "2026-11-26T14:03:07+01:00",
		"2026-01-02 03:04":          "2026-01-02T03:04:00+01:00",
		"2026-11-26T14:03:07Z":      "2026-11-26T14:03:07Z",
		"2026-11-26T14:03:07-05:00": "2026-11-26T14:03:07-05:00",
		"yesterday":                 "",
		"25:00":                     "",
	} {
		got, err := parseTime(text, now)
		switch {
		case want == "" && err == nil:
			t.Errorf("%s: %v, want an error", text, got)
		case want != "" && (err != nil || got.Format(time.RFC3339Nano) != want):
			t.Errorf("%s: %v, %v, want %s", text, got.Format(time.RFC3339Nano), err, want)
		}
	}
}

func TestHistoryOptions_Request(t *testing.T) {
	o := historyOptions{at: "2026-11-26T14:03:07Z", count: 5}
	words, err := o.request("k", time.Now())
	if err != nil || len(words) != 9 || words[6] != int64(1795701787000) || words[8] != int64(1795701787999) {
		t.Errorf("request is %v, error is %v", words, err)
	}
	o = historyOptions{to: "x"}
	if _, err := o.request("k", time.Now()); err == nil || !strings.HasPrefix(err.Error(), "--to") {
		t.Errorf("error is %v, want one that names --to", err)
	}
}
