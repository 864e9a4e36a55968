package commands

import (
	"encoding/json"
	"io"
	"net/netip"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/sluice-net/sluice/internal/units"
)

type step time.Duration

func (s step) String() string { return time.Duration(s).String() }

// answer has a field of each kind that answers have.
type answer struct {
	Name  string     `json:"name"`
	Rate  units.Rate `json:"min_rate"`
	Used  uint64     `json:"used_bits_per_second"`
	Delay float64    `json:"delay_milliseconds,omitempty"`
	Loss  float64    `json:"loss"`
	Share float64    `json:"cpu"`
	At    struct {
		Switch string `json:"switch"`
		Port   int    `json:"port"`
	} `json:"at"`
	Hops []struct {
		Switch string `json:"switch"`
		In     int    `json:"in,omitempty"`
		Out    int    `json:"out"`
	} `json:"hops"`
	Match struct {
		Src netip.Addr `json:"src,omitzero"`
		Dst string     `json:"dst,omitempty"`
	} `json:"match"`
	Load *struct {
		In float64 `json:"bits_per_second_in"`
	} `json:"load,omitempty"`
	Places  map[string]string `json:"places"`
	Ended   *time.Time        `json:"ended,omitempty"`
	Took    step              `json:"took"`
	Notes   []string          `json:"notes,omitempty"`
	Courses []struct {
		Bytes uint64 `json:"bytes"`
		Up    bool   `json:"up"`
	} `json:"courses"`
}

const answered = `{"name":"a","min_rate":"2Mbit","used_bits_per_second":1234567,"loss":0.0105,"cpu":0.12345,"at":{"switch":"s1","port":3},
	"hops":[{"switch":"s1","out":2},{"switch":"s2","in":1,"out":4}],"match":{"dst":"10.0.0.1"},"places":{"b":"s2/1","a":"s1/1"},"took":1500000,
	"notes":["one thing","another"],"courses":[{"bytes":5,"up":true},{"bytes":7,"up":false}]}`

func decoded(t *testing.T) (x answer) {
	t.Helper()
	if err := json.Unmarshal([]byte(answered), &x); err != nil {
		t.Fatal(err)
	}
	return x
}

func printed(print func(io.Writer)) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	print(w)
	_ = w.Flush() // a Builder takes everything
	return b.String()
}

// TestTableShowsValues checks that values show the units of their fields, and that missing values
// are dashes.
func TestTableShowsValues(t *testing.T) {
	table := Table[answer]("name used_bits_per_second delay_milliseconds loss cpu at at.switch/at.port=PLACE hops match load.bits_per_second_in=IN places ended took")
	got := printed(func(w io.Writer) { table(w, []answer{decoded(t)}) })
	const want = "NAME  USED         DELAY  LOSS    CPU    AT    PLACE  HOPS          MATCH         IN  PLACES          ENDED  TOOK\n" +
		"a     1.23 Mbit/s  -      1.05 %  0.123  s1/3  s1/3   s1/2, s2/1>4  dst=10.0.0.1  -   a=s1/1, b=s2/1  -      1.5ms\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestFieldsShowEverything checks that an answer has a line for each field with a value, and tables
// for lists below.
func TestFieldsShowEverything(t *testing.T) {
	got := printed(func(w io.Writer) { Fields(w, decoded(t)) })
	for _, want := range []string{"min rate  2Mbit\n", "notes     one thing\nnotes     another\n", "\nCOURSES\nBYTES  UP\n5      true\n7      false\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "ended") || strings.Contains(got, "delay") {
		t.Errorf("what is left out is shown:\n%s", got)
	}
}

func TestColumnsAreFields(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a column that is no field")
		}
	}()
	Table[answer]("name nmae")
}
