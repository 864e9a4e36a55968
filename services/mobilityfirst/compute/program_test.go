package compute

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/pause"
)

// runShell has a shell be a function.
func runShell(t *testing.T, p Program, script, payload string) (string, error) {
	t.Helper()
	p.Args = []string{"sh", "-c", script}
	if p.Within == 0 {
		p.Within = 20 * time.Second
	}
	if p.Memory == 0 {
		p.Memory = 64 << 20
	}
	out, err := p.Call(t.Context(), &Order{Source: nameOf(1), Destination: nameOf(3)}, []byte(payload))
	return string(out), err
}

func TestProgram(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for what, x := range map[string]struct{ script, payload, want, fails string }{
		"a filter":                      {"tr a-z A-Z", "payload", "PAYLOAD", ""},
		"much in, much out":             {"cat", long, long, ""},
		"one that does not read":        {"echo done", long, "done\n", ""},
		"who it is for":                 {"echo $SLUICE_FROM $SLUICE_TO", "", nameOf(1).String() + " " + nameOf(3).String() + "\n", ""},
		"nothing else in its variables": {"env | grep -c HOME || true", "", "0\n", ""},
		"one that fails":                {"echo half; echo the reason >&2; exit 3", "", "", "exit status 3: the reason"},
		"one that says too much":        {"yes reason | head -c 100000 >&2; exit 1", "", "", "exit status 1: reason"},
		"too large a result":            {"head -c 5000000 /dev/zero", "", "", "a result of more than"},
		"without an end":                {"yes", "", "", "a result of more than"},
		"too much memory":               {"head -c 300000000 /dev/zero | tail -c 300000000 > /dev/null", "", "", "exit status"},
	} {
		t.Run(what, func(t *testing.T) {
			out, err := runShell(t, Program{}, x.script, x.payload)
			switch {
			case x.fails == "" && (err != nil || out != x.want):
				t.Errorf("%.100q, %v", out, err)
			case x.fails != "" && (err == nil || !strings.Contains(err.Error(), x.fails)):
				t.Errorf("%.100q, %v: want an error with %q", out, err, x.fails)
			}
		})
	}
}

// A program that takes too long is killed, and what it has started with it. What it leaves behind when it ends is killed, too.
func TestProgramEnds(t *testing.T) {
	for what, x := range map[string]struct {
		script, fails string
	}{
		"too long":      {"(while :; do echo >> lives; done) & wait", "more than 2s"},
		"leaves behind": {"(while :; do echo >> lives; done) & sleep 0.2", ""},
	} {
		dir := t.TempDir()
		_, err := runShell(t, Program{Within: 2 * time.Second}, "cd "+dir+"; "+x.script, "")
		if (err == nil) != (x.fails == "") || err != nil && !strings.Contains(err.Error(), x.fails) {
			t.Errorf("%s: %v", what, err)
		}
		size := func() int64 {
			st, err := os.Stat(dir + "/lives")
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			return st.Size()
		}
		deadline := time.Now().Add(time.Minute)
		for before := int64(-1); before != size(); {
			if before = size(); time.Now().After(deadline) {
				t.Fatalf("%s: it goes on", what)
			}
			pause.For(300*time.Millisecond, "what is killed ends soon")
		}
	}
}

func TestProgramMissing(t *testing.T) {
	p := Program{Args: []string{"/nowhere/program"}, Within: time.Second, Memory: 64 << 20}
	if _, err := p.Call(t.Context(), &Order{}, nil); err == nil || !strings.Contains(err.Error(), "not found") {
		t.Error(err)
	}
}

// The built-in functions as programs. This program may need more memory than they: it may look for races.
func TestBuiltins(t *testing.T) {
	run := func(name, payload string) (string, error) {
		return runShell(t, Program{Memory: 1 << 50}, child+"="+name+" exec "+os.Args[0], payload)
	}
	text := strings.Repeat("text ", 1000)
	small, err := run("compress", text)
	if err != nil || len(small) > len(text)/10 {
		t.Fatalf("compressed to %d bytes, %v", len(small), err)
	}
	if again, err := run("decompress", small); err != nil || again != text {
		t.Errorf("decompressed to %d bytes, %v", len(again), err)
	}
	if _, err := run("decompress", text); err == nil || !strings.Contains(err.Error(), "gzip") {
		t.Errorf("text was decompressed: %v", err)
	}
	var bomb bytes.Buffer
	if err := compress(&bomb, bytes.NewReader(make([]byte, 50<<20))); err != nil {
		t.Fatal(err)
	}
	if _, err := run("decompress", bomb.String()); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("50 MiB came of %d bytes: %v", bomb.Len(), err)
	}
	if sum, err := run("checksum", "abc"); err != nil || sum != "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\n" {
		t.Errorf("%q, %v", sum, err)
	}
	picture := func(w, h int) string {
		var b bytes.Buffer
		if err := png.Encode(&b, image.NewPaletted(image.Rect(0, 0, w, h), color.Palette{color.Black})); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	jpg, err := run("transcode", picture(300, 200))
	if err != nil {
		t.Fatal(err)
	}
	if size, format, err := image.DecodeConfig(strings.NewReader(jpg)); err != nil || format != "jpeg" || size.Width != 300 || size.Height != 200 {
		t.Errorf("%v %d x %d, %v", format, size.Width, size.Height, err)
	}
	if _, err := run("transcode", picture(2049, 2048)); err == nil || !strings.Contains(err.Error(), "pixels") {
		t.Errorf("an image of more than 4 million pixels: %v", err)
	}
}
