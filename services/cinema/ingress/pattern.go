package ingress

import (
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"time"

	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

// pattern describes a test pattern.
type pattern struct {
	width, height int
	rate          int // pictures per second
	gap           time.Duration
}

var pictureSize = regexp.MustCompile(`^([0-9]{2,4})x([0-9]{2,4})$`)

// parsePattern parses what follows "test:".
func parsePattern(text string) (pattern, error) {
	p := pattern{width: 640, height: 360, rate: defaultFrameRate, gap: defaultKeyFrameGap}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "" || u.Host != "" || u.Path != "" || u.Fragment != "" {
		return p, fmt.Errorf("%q: want parameters like ?size=640x360&rate=30&keyframes=2s, or nothing", text)
	}
	given, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return p, fmt.Errorf("parameters %q: %w", u.RawQuery, err)
	}
	for key, values := range given {
		if len(values) != 1 {
			return p, fmt.Errorf("parameter %q: given %d times", key, len(values))
		}
		if err := p.set(key, values[0]); err != nil {
			return p, err
		}
	}
	return p, nil
}

func (p *pattern) set(key, value string) error {
	switch key {
	case "size":
		m := pictureSize.FindStringSubmatch(value)
		if m == nil {
			return fmt.Errorf("size %q: want one like 640x360", value)
		}
		p.width, _ = strconv.Atoi(m[1])
		p.height, _ = strconv.Atoi(m[2])
		if p.width%2 != 0 || p.height%2 != 0 || p.width < 64 || p.height < 64 || p.width > 1280 || p.height > 720 {
			return fmt.Errorf("size %s: want even numbers, from 64x64 to 1280x720", value)
		}
	case "rate":
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 || n > 60 {
			return fmt.Errorf("rate %q: want a whole number from 1 to 60", value)
		}
		p.rate = n
	case "keyframes":
		d, err := time.ParseDuration(value)
		if err != nil || d < 100*time.Millisecond || d > 10*time.Second {
			return fmt.Errorf("keyframes %q: want a duration from 100ms to 10s", value)
		}
		p.gap = d
	default:
		return fmt.Errorf("parameter %q: want size, rate or keyframes", key)
	}
	return nil
}

// input returns the arguments that make ffmpeg generate a channel's pattern: a moving picture
// with a square in the channel's colour, its number and name, a clock for people and one for
// programs, and a tone of the channel's pitch.
func (p pattern) input(c gatewayapi.Channel) []string {
	square := max(p.height/6, 16)
	picture := fmt.Sprintf("testsrc2=size=%dx%d:rate=%d,drawbox=x=0:y=0:w=%d:h=%d:color=0x%06x:t=fill",
		p.width, p.height, p.rate, square, square, gatewayapi.PatternColour(c.Number)) + clock(square/2)
	if font := findFont(fonts); font != "" {
		// A channel's name contains no character that must be escaped here.
		picture += fmt.Sprintf(",drawtext=fontfile=%s:fontsize=%d:fontcolor=white:box=1:boxcolor=black@0.7:boxborderw=6:x=(w-tw)/2:y=h/2:"+
			"text='%d %s %%{localtime\\:%%T} %%{n}'", font, max(p.height/12, 12), c.Number, c.Name)
	}
	tone := fmt.Sprintf("sine=frequency=%d:sample_rate=48000", gatewayapi.PatternPitch(c.Number))
	// Picture and tone are one input, because ffmpeg reads ahead from each of several inputs. The
	// pictures would then be late by eight pictures.
	return []string{"-re", "-f", "lavfi", "-i", picture + "[out0];" + tone + "[out1]"}
}

// clock returns the filters of ffmpeg that draw the time beside the square, with one cell of the given
// width for each of gatewayapi.PatternClockBits bits.
func clock(cell int) string {
	draw := func(at, wide int, colour, when string) string {
		return fmt.Sprintf(",drawbox=x=%d:y=0:w=%d:h=%d:color=%s:t=fill:enable='%s'", at*cell, wide*cell, cell, colour, when)
	}
	all := draw(2, gatewayapi.PatternClockBits, "black", "1")
	for i := range gatewayapi.PatternClockBits {
		// Bit n of the Gray code of x is 1 if x/2^(n+1), rounded, is odd. The highest bit is
		// the highest bit of x itself.
		n := gatewayapi.PatternClockBits - 1 - i
		divisor, round := gatewayapi.PatternClockUnit.Microseconds()<<(n+1), 0.5
		if i == 0 {
			divisor, round = divisor/2, 0
		}
		all += draw(2+i, 1, "white", fmt.Sprintf("mod(floor(time(0)*1000000/%d+%.1f),2)", divisor, round))
	}
	return all
}

// fonts lists the paths at which usual fonts are installed; the first one that exists is used.
var fonts = []string{
	"/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf",
	"/usr/share/fonts/truetype/liberation/LiberationSans-Regular.ttf",
	"/usr/share/fonts/dejavu-sans-fonts/DejaVuSans.ttf",
	"/usr/share/fonts/TTF/DejaVuSans.ttf",
}

func findFont(names []string) string {
	for _, name := range names {
		if _, err := os.Stat(name); err == nil {
			return name
		}
	}
	return ""
}
