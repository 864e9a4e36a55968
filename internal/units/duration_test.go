package units_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/units"
)

func TestDuration(t *testing.T) {
	var d units.Duration
	if err := json.Unmarshal([]byte(`"1m30s"`), &d); err != nil || time.Duration(d) != 90*time.Second || d.String() != "1m30s" {
		t.Errorf("%v %v", d, err)
	}
	if json.Unmarshal([]byte(`"90"`), &d) == nil {
		t.Error("a number without a unit is accepted")
	}
}
