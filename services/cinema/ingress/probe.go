package ingress

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

// Bounds of the examination of a source before it is played.
const (
	probeTimeout   = 10 * time.Second // duration of the examination
	probeSeconds   = 15               // seconds of the file that are read
	maxKeyFrameGap = 5.0              // longest time between key frames, in seconds, of a file that is copied
)

// maxProbeBytes bounds the beginning of a producer's stream that is examined.
const maxProbeBytes = 4 << 20

// probeResult is the output of ffprobe.
type probeResult struct {
	Streams []probedStream `json:"streams"`
	Packets []struct {
		Kind  string `json:"codec_type"`
		Time  string `json:"dts_time"`
		Flags string `json:"flags"`
	} `json:"packets"`
	Frames []struct {
		Kind string         `json:"media_type"`
		Side []probedMatrix `json:"side_data_list"`
	} `json:"frames"`
	Format struct {
		BitRate string `json:"bit_rate"`
	} `json:"format"`
}

// probedStream describes one of a source's streams. Numbers with a slash or a colon are fractions.
type probedStream struct {
	Kind     string         `json:"codec_type"`
	Codec    string         `json:"codec_name"`
	Profile  string         `json:"profile"`
	Format   string         `json:"pix_fmt"`
	Delayed  int            `json:"has_b_frames"`
	Width    int            `json:"width"`
	Height   int            `json:"height"`
	Aspect   string         `json:"sample_aspect_ratio"`
	Rate     string         `json:"r_frame_rate"` // the lowest rate that has all timestamps
	MeanRate string         `json:"avg_frame_rate"`
	Side     []probedMatrix `json:"side_data_list"`
}

// probedMatrix holds the counterclockwise angle in degrees by which a picture has to be rotated to be
// upright. It is zero for other data that accompany a picture.
type probedMatrix struct {
	Angle int `json:"rotation"`
}

// pictureEntries lists the properties of a stream that describe its picture.
const pictureEntries = "codec_type,codec_name,width,height,sample_aspect_ratio,r_frame_rate,avg_frame_rate"

// probe examines a file, or the stream of an RTSP server, with ffprobe. A source is examined each time
// before it is read, because it may have other media than the last time. If ffprobe fails, probe returns
// the zero value: the source is transcoded, and expected to have picture and sound.
func (f *ffmpegSource) probe(ctx context.Context) sourceProperties {
	var input []string
	switch {
	case f.source.file != "":
		input = []string{
			"-protocol_whitelist", "file", "-read_intervals", fmt.Sprintf("%%+%d", probeSeconds),
			"-show_entries", "stream=" + pictureEntries + ",profile,pix_fmt,has_b_frames:stream_side_data=rotation:packet=codec_type,dts_time,flags:format=bit_rate",
			"file:" + f.source.file,
		}
	case f.source.scheme == "rtsp":
		input = append([]string{
			"-read_intervals", "%+#10", "-show_entries", "stream=" + pictureEntries + ":stream_side_data=rotation:frame=media_type:frame_side_data=rotation",
		}, f.source.input...)
	default:
		return sourceProperties{}
	}
	p, err := f.runProbe(ctx, nil, input)
	if err != nil {
		return sourceProperties{}
	}
	spec := f.ch.currentSpec()
	return p.properties(float64(spec.BitRate), spec.Picture)
}

// probePicture examines the beginning of a producer's stream, in ffmpeg's format of the given name, and
// returns its picture. pictureMap is ffmpeg's name of the picture's stream; empty means the first one. If
// ffprobe fails, probePicture returns the zero value.
func (f *ffmpegSource) probePicture(ctx context.Context, begin []byte, format, pictureMap string) inputPicture {
	p, err := f.runProbe(ctx, begin[:min(len(begin), maxProbeBytes)], []string{
		"-protocol_whitelist", "pipe", "-select_streams", cmp.Or(strings.TrimPrefix(pictureMap, "0:"), "v:0"), "-read_intervals", "%+#1",
		"-show_entries", "stream=" + pictureEntries + ":stream_side_data=rotation:frame=media_type:frame_side_data=rotation",
		"-f", format, "pipe:0",
	})
	if err != nil {
		return inputPicture{}
	}
	return p.picture()
}

// runProbe runs ffprobe with an input and its options. stdin is what the input pipe:0 is.
func (f *ffmpegSource) runProbe(ctx context.Context, stdin []byte, input []string) (p probeResult, err error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	program := "ffprobe"
	if dir, name := filepath.Split(f.ffmpeg); dir != "" && strings.HasPrefix(name, "ffmpeg") {
		program = dir + "ffprobe" + strings.TrimPrefix(name, "ffmpeg")
	}
	cmd := f.command(ctx, &tail{source: f.source.address}, append([]string{"-v", "error", "-of", "json"}, input...))
	cmd.Path, cmd.Args[0], cmd.Err = program, program, nil
	if !filepath.IsAbs(program) {
		if cmd.Path, err = exec.LookPath(program); err != nil {
			return p, err
		}
	}
	out := &limitedBuffer{most: 4 << 20}
	cmd.Stdin, cmd.Stdout = bytes.NewReader(stdin), out
	if err := cmd.Run(); err != nil {
		return p, fmt.Errorf("ffprobe: %w", err)
	}
	if err := json.Unmarshal(out.b, &p); err != nil {
		return p, fmt.Errorf("ffprobe: %w", err)
	}
	return p, nil
}

// picture returns the picture of the first stream that has one.
func (p *probeResult) picture() inputPicture {
	i := slices.IndexFunc(p.Streams, func(s probedStream) bool { return s.Kind == "video" })
	if i < 0 {
		return inputPicture{}
	}
	s := p.Streams[i]
	in := inputPicture{width: s.Width, height: s.Height, aspect: fraction(s.Aspect, ":"), rate: fraction(s.Rate, "/")}
	if math.Abs(in.aspect-1) < 0.005 { // of a picture that was scaled to even numbers of pixels
		in.aspect = 1
	}
	if mean := fraction(s.MeanRate, "/"); in.rate > 120 || in.rate == 0 || mean > 0 && mean < in.rate*0.6 {
		// The first rate is that of the format's clock, or of fields.
		in.rate = roundRate(mean)
	}
	side := s.Side
	for _, frame := range p.Frames {
		if frame.Kind == "video" {
			side = append(side, frame.Side...)
		}
	}
	for _, m := range side {
		if m.Angle != 0 {
			in.turn = ((360-m.Angle%360)%360 + 45) / 90 * 90 % 360
			break
		}
	}
	return in
}

// fraction parses a fraction whose parts are separated as given. It returns zero if there is none.
func fraction(text, separator string) float64 {
	a, b, _ := strings.Cut(text, separator)
	above, err := strconv.Atoi(a)
	if err != nil {
		return 0
	}
	below, err := strconv.Atoi(b)
	if err != nil || above <= 0 || below <= 0 {
		return 0
	}
	return float64(above) / float64(below)
}

// properties returns how the examined source is to be played: which media it has, and whether its video
// can be copied because it is in the house format (package media), and within the channel's bit rate and
// picture.
func (p *probeResult) properties(bitRate float64, format gatewayapi.Picture) sourceProperties {
	if len(p.Streams) == 0 {
		return sourceProperties{}
	}
	properties := sourceProperties{silent: true, copied: true, picture: p.picture()}
	seen := false
	for _, s := range p.Streams {
		switch s.Kind {
		case "audio":
			properties.silent = false
		case "video":
			if seen { // only the first one is played
				continue
			}
			seen = true
			properties.copied = s.Codec == "h264" && strings.Contains(s.Profile, "Baseline") && s.Delayed == 0 && s.Format == "yuv420p"
		}
	}
	if rate, err := strconv.ParseFloat(p.Format.BitRate, 64); err != nil || rate > bitRate {
		properties.copied = false
	}
	if in := properties.picture; in != (inputPicture{}) {
		out := outputOf(in, format)
		properties.copied = properties.copied && out.width == in.width && out.height == in.height && out.turn == 0 && cmp.Or(in.aspect, 1) == 1 && in.rate <= out.rate
	}
	properties.blind = !seen && !properties.silent
	properties.copied = properties.copied && seen && p.keyFramesFrequent()
	return properties
}

// keyFramesFrequent reports whether the time between key frames is never more than maxKeyFrameGap, so
// that viewers can wait for the next one.
func (p *probeResult) keyFramesFrequent() bool {
	key, last, seen := 0.0, 0.0, 0
	for _, x := range p.Packets {
		at, err := strconv.ParseFloat(x.Time, 64)
		if x.Kind != "video" || err != nil {
			continue
		}
		last = at
		if strings.HasPrefix(x.Flags, "K") {
			seen++
			key = at
		}
		if at-key > maxKeyFrameGap {
			return false
		}
	}
	return seen > 0 && last-key <= maxKeyFrameGap
}

// limitedBuffer is a buffer with a maximum length.
type limitedBuffer struct {
	b    []byte
	most int
}

// Write implements io.Writer. It returns an error when the buffer is full.
func (w *limitedBuffer) Write(b []byte) (int, error) {
	if len(w.b)+len(b) > w.most {
		return 0, fmt.Errorf("more than %d bytes", w.most)
	}
	w.b = append(w.b, b...)
	return len(b), nil
}
