package dashboard_test

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/cluster/health"
	"github.com/holdfast-kv/holdfast/cluster/verdict"
	"github.com/holdfast-kv/holdfast/dashboard"
)

// TestAPI_Documented checks that docs/api.md names every field of the types
// below.
func TestAPI_Documented(t *testing.T) {
	page, err := os.ReadFile("../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, answer := range []any{
		dashboard.Status{}, verdict.Verdict{}, verdict.Problem{}, health.NodeStatus{}, health.Link{}, dashboard.Keys{},
		dashboard.Key{}, dashboard.Traffic{}, dashboard.EventList{}, dashboard.Event{},
	} {
		for _, field := range reflect.VisibleFields(reflect.TypeOf(answer)) {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if name != "" && !strings.Contains(string(page), "`"+name+"`") {
				t.Errorf("docs/api.md does not name the field %s of %T", name, answer)
			}
		}
	}
}
