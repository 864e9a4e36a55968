package experiment

import (
	"bytes"
	"encoding/xml"
	"errors"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestQuantile(t *testing.T) {
	cases := []struct {
		values []float64
		q      float64
		want   float64
	}{
		{[]float64{3, 1, 2}, 0.5, 2},
		{[]float64{4, 1, 2, 3}, 0.5, 2.5},
		{[]float64{10, 20}, 0.95, 19.5},
		{[]float64{7}, 0.99, 7},
		{[]float64{1, 2, 3}, 1, 3},
	}
	for _, c := range cases {
		if got := quantile(c.values, c.q); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("quantile(%v, %v) = %v, want %v", c.values, c.q, got, c.want)
		}
	}
	if !math.IsNaN(median(nil)) {
		t.Error("the median of nothing is a number")
	}
}

// TestMeanText checks that the interval of a mean follows Student's distribution: for 1 to 5 it is
// 3 ± 1.963.
func TestMeanText(t *testing.T) {
	for want, values := range map[string][]float64{"3.00 ± 1.96": {1, 2, 3, 4, 5}, "7.00": {7}, "": nil, "2.00 ± 0.00": {2, 2}} {
		if got := meanText(values, 1, 2); got != want {
			t.Errorf("%v: %q, want %q", values, got, want)
		}
	}
}

func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for _, e := range All() {
		if seen[e.Name] {
			t.Errorf("two experiments are called %s", e.Name)
		}
		seen[e.Name] = true
		if e.Title == "" || e.Question == "" || e.Run == nil {
			t.Errorf("%s lacks a title, a question or its code", e.Name)
		}
	}
	if _, err := Find("nonsense"); err == nil || !strings.Contains(err.Error(), "there are:") {
		t.Errorf("Find of an unknown name gives %v", err)
	}
	if _, err := ParseScale("huge"); err == nil {
		t.Error("ParseScale accepts a scale that does not exist")
	}
}

func TestCSVKeepsEveryRowAtOnce(t *testing.T) {
	env := &Env{Dir: t.TempDir(), log: io.Discard}
	c, err := env.CSV("raw", "name", "seconds")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Row("a,b", 1500*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(env.Dir, "raw.csv"))
	if err != nil {
		t.Fatal(err)
	}
	if want := "name,seconds\n\"a,b\",1.5\n"; string(got) != want {
		t.Errorf("file holds %q, want %q", got, want)
	}
	if err := c.Row("too few"); err == nil {
		t.Error("a row with a cell missing is accepted")
	}
}

func TestPublish(t *testing.T) {
	var log bytes.Buffer
	env := &Env{Dir: t.TempDir(), Scale: Quick, log: &log, started: time.Now()}
	result := &Result{Network: "one <link>"}
	result.Tables = []Table{{Title: "Goodput", Columns: []string{"p", "ours", "theirs"}}}
	result.Tables[0].Add(4, "1.5", 3.0)
	result.Claim(true, "at least 1", "%.1f", 1.5)
	result.Claim(false, "at least 2", "%.1f", 1.5)
	result.Note("measured on %s", "one machine")
	ours := Series{Label: "SOS"}
	theirs := Series{Label: "SOS 2018", Published: true}
	for _, p := range []float64{1, 2, 4} {
		ours.Point(p, p)
		theirs.Point(p, 2*p)
	}
	result.Plots = []Plot{{Name: "goodput", Title: "Goodput", X: "p", Y: "Gbit/s", LogX: true, Series: []Series{ours, theirs}}}

	page, err := publish(Experiment{Name: "x", Title: "X"}, env, result, Machine{CPU: "abacus"})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"one &lt;link&gt;", "abacus", "<svg", "SOS 2018 (published)", `class="missed"`, "goodput.png"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the report does not contain %q", want)
		}
	}
	if strings.Contains(string(text), "<?xml") {
		t.Error("the report contains an XML declaration")
	}
	checkImages(t, env.Dir)
	if err := result.print(&log); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "MISSED  at least 2: 1.5") {
		t.Errorf("the terminal does not name the missed claim:\n%s", log.String())
	}
}

func checkImages(t *testing.T, dir string) {
	t.Helper()
	svg, err := os.Open(filepath.Join(dir, "goodput.svg"))
	if err != nil {
		t.Fatal(err)
	}
	defer svg.Close()
	decoder := xml.NewDecoder(svg)
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("the SVG is no XML: %v", err)
		}
	}
	image, err := os.Open(filepath.Join(dir, "goodput.png"))
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	if _, err := png.Decode(image); err != nil {
		t.Errorf("the PNG is none: %v", err)
	}
}
