package ingress

import (
	"cmp"
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

// maxSource is the maximum length of a source in bytes.
const maxSource = 1024

// Defaults for sources that specify nothing else.
const (
	defaultFrameRate   = 30 // pictures per second
	defaultKeyFrameGap = 2 * time.Second
)

// source describes what a channel's ffmpeg reads.
type source struct {
	address gatewayapi.SourceAddress
	scheme  string
	// input holds the arguments of ffmpeg for the input, up to -i and the address. A test
	// pattern has none, because its arguments depend on the channel.
	input []string
	// file is the path of a file, which can be examined before it is played.
	file string
	// waits is the address at which the gateway waits for a producer to connect; nil if the source
	// is no such address.
	waits *waitingPlace
	test  pattern
}

// waitingPlace is the address at which the gateway waits for a source's producer, and the key that the
// producer has to know.
type waitingPlace struct {
	at netip.AddrPort
	// key is the application and the stream key of RTMP, like live/stage, or the stream ID of
	// SRT. If it is empty, any is accepted.
	key string
	// options holds the parameters for SRT, by the names that ffmpeg uses for them.
	options url.Values
}

// parseSource parses a channel's source.
func parseSource(text string) (source, error) {
	s, err := parseAddress(text)
	s.address = gatewayapi.SourceAddress(text)
	return s, err
}

func parseAddress(text string) (source, error) {
	if len(text) > maxSource {
		return source{}, fmt.Errorf("%d bytes, at most %d", len(text), maxSource)
	}
	if strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return source{}, fmt.Errorf("%q: want it without spaces and control characters", gatewayapi.SourceAddress(text))
	}
	scheme, rest, _ := strings.Cut(text, ":")
	switch scheme {
	case "test":
		p, err := parsePattern(rest)
		return source{scheme: scheme, test: p}, err
	case "file":
		return parseFile(rest)
	case "rtsp", "rtmp", "srt", "udp":
		return parseStream(scheme, text)
	}
	return source{}, fmt.Errorf("%q: want nothing (for WHIP), test:, file:/PATH, rtsp://, rtmp://, srt:// or udp://", gatewayapi.SourceAddress(text))
}

func parseFile(name string) (source, error) {
	if !path.IsAbs(name) || path.Clean(name) != name {
		return source{}, fmt.Errorf("%q: want file: and an absolute path, like file:/srv/film.mp4", name)
	}
	// If the file is a playlist, the files that it names must not be fetched from the network.
	return source{
		scheme: "file", file: name,
		input: []string{"-protocol_whitelist", "file", "-re", "-stream_loop", "-1", "-i", "file:" + name},
	}, nil
}

// parseStream parses the address of a stream: that of a server (rtsp), or that at which the gateway
// waits for a producer.
func parseStream(scheme, text string) (source, error) {
	u, err := url.Parse(text)
	if err != nil {
		return source{}, fmt.Errorf("%q: want an address like %s://192.0.2.1:9000", gatewayapi.SourceAddress(text), scheme)
	}
	if u.Hostname() == "" && scheme == "rtsp" || u.Fragment != "" {
		return source{}, fmt.Errorf("%q: want an address with a host and without a fragment", gatewayapi.SourceAddress(text))
	}
	if scheme == "rtsp" {
		return source{scheme: scheme, input: []string{
			"-protocol_whitelist", "rtsp,rtp,udp,tcp", "-rtsp_transport", "tcp", "-timeout", "5000000",
			"-analyzeduration", "2000000", "-fpsprobesize", "0", "-i", text,
		}}, nil
	}
	if want := gatewayapi.SourceAddress(text).Fault(); want != "" {
		return source{}, fmt.Errorf("%q: want %s", gatewayapi.SourceAddress(text), want)
	}
	waits, err := parseWaiting(u)
	return source{scheme: scheme, waits: waits}, err
}

// options holds the permitted parameters of an address, by scheme.
var options = map[string][]string{"srt": {"latency", "passphrase", "streamid", "pbkeylen"}}

// parseWaiting returns the address at which the gateway waits for a producer, and the producer's key.
func parseWaiting(u *url.URL) (*waitingPlace, error) {
	host := netip.IPv4Unspecified()
	if h := u.Hostname(); h != "" {
		var err error
		if host, err = netip.ParseAddr(h); err != nil || host.Zone() != "" {
			return nil, fmt.Errorf("%q: want an address of this machine, or none, before the port", h)
		}
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	if err != nil || port < 1024 {
		return nil, fmt.Errorf("port %q: want one from 1024 to 65535", u.Port())
	}
	given := u.Query()
	for key := range given {
		if !slices.Contains(options[u.Scheme], key) {
			return nil, fmt.Errorf("%q: want no parameters but %q", gatewayapi.SourceAddress(u.String()), options[u.Scheme])
		}
	}
	w := &waitingPlace{at: netip.AddrPortFrom(host, uint16(port))}
	switch u.Scheme {
	case "rtmp":
		w.key = strings.Trim(u.Path, "/")
	case "srt":
		w.key = given.Get("streamid")
		given.Del("streamid")
		w.options = given
	}
	return w, nil
}

// sourceProperties holds what is known of a source: from ffprobe, from ffmpeg's errors, or from the
// stream that the gateway receives.
type sourceProperties struct {
	silent bool // it has no sound
	blind  bool // it has no picture
	copied bool // its video is in the house format (package media) and can be copied
	// picture is the source's picture, as far as it is known.
	picture inputPicture
	// piped is ffmpeg's name of the format in which the gateway writes the source to ffmpeg's
	// standard input; empty if ffmpeg reads the source itself.
	piped string
	// pictureMap and soundMap are ffmpeg's names of the streams; empty means the first ones.
	pictureMap, soundMap string
}

// output returns the picture that viewers get of a channel's source.
func (s source) output(c gatewayapi.Channel, properties sourceProperties) outputPicture {
	in := properties.picture
	switch {
	case properties.blind:
		in = blackPicture
	case s.scheme == "test":
		in = inputPicture{width: s.test.width, height: s.test.height, rate: float64(s.test.rate)}
	}
	return outputOf(in, c.Picture)
}

// command returns the arguments that make ffmpeg send a channel's source, in the house format,
// to a port of the loopback interface. began is the time that ffmpeg's sender reports name for the
// beginning of picture and sound. Without it, those of picture and of sound would not be comparable.
func (s source) command(c gatewayapi.Channel, port uint16, began time.Time, properties sourceProperties) []string {
	// Without -noautorotate ffmpeg turns only the pictures that say that they are turned, which may be only
	// the key frames.
	args := []string{"-hide_banner", "-nostdin", "-nostats", "-loglevel", "error", "-noautorotate"}
	input, picture, sound := s.input, cmp.Or(properties.pictureMap, "0:v:0"), cmp.Or(properties.soundMap, "0:a:0")
	gap := defaultKeyFrameGap
	switch {
	case properties.piped != "":
		// The rate of pictures, for which ffmpeg would wait for 20 of them, is not needed. What it reads
		// to examine the stream it must not discard (nobuffer), because that has the first key frame.
		input = []string{"-protocol_whitelist", "pipe", "-analyzeduration", "1000000", "-fpsprobesize", "0", "-f", properties.piped, "-i", "pipe:0"}
	case s.scheme == "test":
		input = s.test.input(c)
		gap = s.test.gap
	case properties.copied:
		input = []string{"-protocol_whitelist", "file,pipe", "-re", "-f", "concat", "-safe", "0", "-i", "pipe:0"}
	}
	args = append(args, input...)
	if properties.blind {
		args = append(args, blackInput...)
		picture, gap = "1:v:0", time.Second
	}
	args = append(args, "-map", picture)
	video, audio := splitRate(int64(c.BitRate))
	if properties.copied {
		args = append(args, "-c:v", "copy", "-bsf:v", "h264_mp4toannexb,dump_extra=freq=keyframe")
	} else {
		args = append(args, encoder(s.scheme == "rtsp", video, s.output(c, properties), c.Picture, gap)...)
	}
	to := fmt.Sprintf("rtp://127.0.0.1:%d?rtcpport=%d&pkt_size=%d", port, port, packetSize)
	clock := strconv.FormatInt(began.UnixMicro(), 10)
	args = append(args, "-start_time_realtime", clock, "-f", "rtp", "-payload_type", "96", to)
	if properties.silent {
		return args
	}
	args = append(args, "-map", sound)
	if s.scheme == "rtsp" {
		args = append(args, "-af", "a"+continuous("NB_SAMPLES"))
	}
	return append(args, "-c:a", "libopus", "-b:a", strconv.FormatInt(audio, 10), "-ar", "48000", "-ac", "2",
		"-application", "lowdelay", "-frame_duration", "20", "-start_time_realtime", clock, "-f", "rtp", "-payload_type", "111", to)
}

// blackPicture is what viewers see of a source without a picture, and blackInput holds the arguments that
// make ffmpeg generate it. Without pictures a player would not begin.
var (
	blackPicture = inputPicture{width: 640, height: 360, rate: 10}
	blackInput   = []string{"-re", "-f", "lavfi", "-i", fmt.Sprintf("color=c=black:s=%dx%d:r=%g", blackPicture.width, blackPicture.height, blackPicture.rate)}
)

// playsPerProcess is how many times one process plays a file.
const playsPerProcess = 2000

// concatList returns ffmpeg's input for a file that is copied: a list that names the file
// playsPerProcess times. ffmpeg's own option to loop a file does not work with the filters that put
// parameter sets before key frames.
func (s source) concatList() string {
	line := fmt.Sprintf("file 'file:%s'\n", strings.ReplaceAll(s.file, "'", `'\''`))
	return "ffconcat version 1.0\n" + strings.Repeat(line, playsPerProcess)
}

// packetSize is the maximum length of ffmpeg's RTP packets in bytes. With all its headers, and the
// headers of a tunnel, such a packet fits into an Ethernet frame.
const packetSize = 1200

// splitRate divides a channel's bit rate, in bit/s, between video and audio, and leaves room
// for headers.
func splitRate(all int64) (video, audio int64) {
	audio = min(max(all/12, 16_000), 96_000)
	return max((all-audio)*82/100, 50_000), audio
}

// encoder returns the arguments for the house format: the constrained baseline profile, no
// picture that depends on a later one, one slice per picture, and key frames at a fixed
// interval, each with its parameter sets. The rate control buffer is so small that the bits of no
// second exceed bitRate by more than a quarter. jumps reports whether timestamps may jump.
//
// ffmpeg drops pictures beyond the given rate, and repeats none (vsync vfr). So it sends no more if
// timestamps jump, or if a producer sends at once what it could not send for a while.
func encoder(jumps bool, bitRate int64, out outputPicture, format gatewayapi.Picture, gap time.Duration) []string {
	rate := strconv.FormatFloat(out.rate, 'f', -1, 64)
	pictures := max(int(gap.Seconds()*out.rate), 1)
	filters := limitRate(out.rate) + "," + out.filters(format)
	if jumps {
		filters = continuous("1/("+rate+"*TB)") + "," + filters
	}
	return []string{
		"-vf", filters, "-r", rate, "-vsync", "vfr", "-pix_fmt", "yuv420p",
		"-c:v", "libx264", "-profile:v", "baseline", "-level:v", out.level, "-preset", "superfast", "-tune", "zerolatency", "-threads", "1",
		"-b:v", strconv.FormatInt(bitRate, 10), "-maxrate", strconv.FormatInt(bitRate, 10), "-bufsize", strconv.FormatInt(bitRate/4, 10),
		"-x264-params", fmt.Sprintf("keyint=%d:min-keyint=%d:scenecut=0:repeat-headers=1:bframes=0:ref=1", pictures, pictures),
		// keyint counts pictures, of which a source may send fewer. Half a picture makes up for
		// rounding.
		"-force_key_frames", fmt.Sprintf("expr:if(isnan(prev_forced_t),1,gte(t,prev_forced_t+%.4f))", gap.Seconds()-0.5/out.rate),
	}
}

// limitRate returns the filter of ffmpeg that drops pictures beyond a rate, by their timestamps and by
// the clock. By the clock it permits a quarter more, after a pause half a second of pictures at once (a
// token bucket), so that a short stall does no harm. Without it, viewers would get all pictures that a
// producer sends at once after a pause, none of them current.
func limitRate(rate float64) string {
	const tokens, last = 0, 1 // variables of the expression: the tokens, and when they were counted
	refill := fmt.Sprintf("st(%d,min(%g,ld(%d)+%g*max(0,time(0)-ld(%d))));st(%d,time(0))", tokens, max(rate/2, 1), tokens, 1.25*rate, last, last)
	take := fmt.Sprintf("if(gte(ld(%d),1),st(%d,ld(%d)-1)+1,0)", tokens, tokens, tokens)
	return fmt.Sprintf("select='if(lt(t-prev_selected_t,%g),0,%s;%s)'", 0.75/rate, refill, take)
}
