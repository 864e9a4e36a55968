package ingress

import (
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/services/cinema/mpegts"
)

// TestTimeline checks that a stream's times continue when they jump, that picture and sound stay
// together, and that times that do not jump are not changed.
func TestTimeline(t *testing.T) {
	const hour = 3600 * 90000
	for name, jump := range map[string]int64{"an hour forward": hour, "an hour back": -hour, "two seconds": 180000, "half a second": 45000, "around the end": 1<<33 - 100000} {
		t.Run(name, func(t *testing.T) {
			line := timeline{second: 90000, bits: 33}
			in, last := int64(10*hour), int64(-1)
			for i := range int64(2000) {
				if i == 1000 {
					in += jump
				}
				at := line.wrap(in + i*1800)
				p := line.wrap(at + line.shift(picture, at))
				s := line.wrap(at + line.shift(sound, at))
				if p != s {
					t.Fatalf("%d: the picture is at %d, and sound at %d", i, p, s)
				}
				if d := line.distance(p, last); last >= 0 && (d <= 0 || d > 90000) {
					t.Fatalf("%d: %d units after the last", i, d)
				}
				if i < 1000 && p != at {
					t.Fatalf("%d: %d is sent as %d", i, at, p)
				}
				last = p
			}
		})
	}
}

// TestTimelineAfterPause checks that a medium that comes back after a pause is where the other one is.
func TestTimelineAfterPause(t *testing.T) {
	line := timeline{second: 1000, bits: 32}
	for at := int64(0); at < 20_000; at += 20 {
		if n := line.shift(sound, at); n != 0 {
			t.Fatalf("sound at %d is shifted by %d", at, n)
		}
		if at > 5_000 && at < 12_000 {
			continue
		}
		if n := line.shift(picture, at); n != 0 {
			t.Fatalf("a picture at %d is shifted by %d", at, n)
		}
	}
}

// TestContinuous checks that the filter for streams that ffmpeg reads itself makes times continuous that
// jump an hour forward and back.
func TestContinuous(t *testing.T) {
	t.Parallel()
	needFFmpeg(t)
	for name, args := range map[string][]string{
		"picture": {"-i", "testsrc2=size=64x64:rate=25:duration=12,setpts='PTS+between(N,100,199)*3600/TB'", "-vf", continuous("1/(25*TB)"), "-vsync", "passthrough"},
		"sound":   {"-i", "sine=duration=12:samples_per_frame=1764,asetpts='PTS+between(N,100,199)*3600/TB'", "-af", "a" + continuous("NB_SAMPLES")},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "ffmpeg", append(append([]string{"-v", "error", "-f", "lavfi"}, args...), "-f", "framecrc", "-")...)
			out, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			count, last, step := 0, int64(0), int64(0)
			for line := range strings.Lines(string(out)) {
				fields := strings.Split(line, ",")
				if strings.HasPrefix(line, "#") || len(fields) < 4 {
					continue
				}
				at, err := strconv.ParseInt(strings.TrimSpace(fields[2]), 10, 64)
				if err != nil {
					t.Fatalf("%q: %v", line, err)
				}
				if count == 1 {
					step = at - last
				}
				if count > 0 && at-last != step {
					t.Errorf("%d follows %d, want %d later", at, last, step)
				}
				count, last = count+1, at
			}
			if count != 300 {
				t.Errorf("%d of 300", count)
			}
		})
	}
}

// TestTimelineSteps checks that no time is more than a second from the one before of either medium,
// whatever arrives.
func TestTimelineSteps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		line := timeline{second: 1000, bits: 32}
		last := map[medium]int64{}
		for range rapid.IntRange(1, 60).Draw(t, "n") {
			m := medium(rapid.IntRange(0, 1).Draw(t, "medium"))
			at := int64(rapid.Uint32().Draw(t, "at"))
			out := line.wrap(at + line.shift(m, at))
			before, ok := last[m]
			other, otherOK := last[1-m]
			if ok && line.jumps(line.distance(out, before)) && !(otherOK && !line.jumps(line.distance(out, other))) {
				t.Fatalf("%d is sent as %d after %d", at, out, before)
			}
			last[m] = out
		}
	})
}

// TestTransportStreamTimes checks that a transport stream whose times jump back leaves without a
// jump.
func TestTransportStreamTimes(t *testing.T) {
	needFFmpeg(t)
	b, err := os.ReadFile(makeFilm(t, "film.ts", strings.Fields("-f lavfi -t 4 -i testsrc2=size=320x180:rate=20 -f lavfi -t 4 -i sine -c:v libx264 -g 20 -pix_fmt yuv420p -c:a aac -b:a 64k")...))
	if err != nil {
		t.Fatal(err)
	}
	parts := slices.Collect(slices.Chunk(slices.Concat(b, b, b), 1316))
	s := newTSStream(func(time.Time) ([]byte, error) {
		if len(parts) == 0 {
			return nil, errEnded
		}
		part := parts[0]
		parts = parts[1:]
		return part, nil
	}, func() {})
	var out mpegts.Scanner
	last := map[mpegts.Kind]int64{}
	count := 0
	for {
		units, err := s.read(time.Now())
		if err != nil {
			break
		}
		for _, u := range units {
			x := out.Scan(u.data)
			if !x.Timed {
				continue
			}
			count++
			if before, ok := last[x.Kind]; ok && s.times.jumps(s.times.distance(x.Time, before)) {
				t.Errorf("%d is followed by %d", before, x.Time)
			}
			last[x.Kind] = x.Time
		}
	}
	if count < 3*80 || len(last) != 2 {
		t.Errorf("%d times of %d media", count, len(last))
	}
}
