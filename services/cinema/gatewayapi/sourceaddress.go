package gatewayapi

import (
	"log/slog"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// SourceAddress is the address from which a channel comes: test:, file:/PATH, or a URL. It may contain
// secrets: an account, a passphrase, a stream key. Printing the address, or encoding it as text or
// JSON, leaves the secrets out. A conversion to string reveals them.
type SourceAddress string

// StoredSource is a SourceAddress that is stored and sent to gateways. Encoding it as JSON includes its
// secrets. Printing it leaves them out.
type StoredSource string

// String returns the address without its secrets.
func (s SourceAddress) String() string { return redactSource(string(s)) }

// GoString returns the quoted address without its secrets, for %#v.
func (s SourceAddress) GoString() string { return strconv.Quote(s.String()) }

// LogValue returns the address without its secrets, for a log.
func (s SourceAddress) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText returns the address without its secrets, for JSON and YAML.
func (s SourceAddress) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Redact implements the configuration's Redactor.
func (SourceAddress) Redact(text string) string { return SourceAddress(text).String() }

// String returns the address without its secrets.
func (s StoredSource) String() string { return SourceAddress(s).String() }

// GoString returns the quoted address without its secrets, for %#v.
func (s StoredSource) GoString() string { return SourceAddress(s).GoString() }

// LogValue returns the address without its secrets, for a log.
func (s StoredSource) LogValue() slog.Value { return SourceAddress(s).LogValue() }

// RedactText returns the output of a program that reads the source, without the secrets of the source.
// It also removes the secrets of other addresses in the text, as far as it recognises them as
// addresses.
func (s SourceAddress) RedactText(text string) string {
	hidden := make([]bool, len(text)) // by byte, because secrets may overlap
	for _, secret := range s.secrets() {
		for from := 0; ; {
			i := strings.Index(text[from:], secret)
			if i < 0 {
				break
			}
			for n := range len(secret) {
				hidden[from+i+n] = true
			}
			from += i + 1
		}
	}
	var out strings.Builder
	for i := range len(text) {
		switch {
		case !hidden[i]:
			out.WriteByte(text[i])
		case i == 0 || !hidden[i-1]:
			out.WriteString(Hidden)
		}
	}
	return redactText(out.String())
}

// secrets returns the parts of the address that must not be shown, each as it is written and with its
// URL escapes decoded.
func (s SourceAddress) secrets() (all []string) {
	where, query, _ := strings.Cut(string(s), "?")
	scheme, _, _ := strings.Cut(where, ":")
	if scheme == "file" || scheme == "test" {
		return nil
	}
	add := func(secret string) {
		all = append(all, secret)
		if meant, err := url.QueryUnescape(secret); err == nil {
			all = append(all, meant)
		}
		if meant, err := url.PathUnescape(secret); err == nil {
			all = append(all, meant)
		}
	}
	_, rest, _ := strings.Cut(string(s), "://")
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		account := rest[:i]
		add(account)
		if _, password, ok := strings.Cut(account, ":"); ok {
			add(password)
			// Programs disagree about which @, / or ? ends the account.
			for _, part := range strings.FieldsFunc(password, func(r rune) bool { return strings.ContainsRune("@/?#", r) }) {
				add(part)
			}
		}
	}
	for segment := range strings.SplitSeq(afterHost(where), "/") {
		if isSecretSegment(scheme, segment) {
			add(segment)
			for pair := range strings.FieldsFuncSeq(segment, func(r rune) bool { return r == '&' || r == ';' || r == '_' }) {
				if key, value, ok := strings.Cut(pair, "="); ok && !isSafe(key, value) {
					add(value)
				}
			}
		}
	}
	if scheme == "rtmp" {
		add(streamKey(afterHost(where)))
	}
	for pair := range strings.SplitSeq(query, "&") {
		key, value, ok := strings.Cut(pair, "=")
		switch {
		case !ok:
			add(pair)
		case !isSafe(key, value):
			add(value)
		}
	}
	all = slices.DeleteFunc(all, func(secret string) bool { return secret == "" })
	slices.Sort(all)
	return slices.Compact(all)
}

// isSecretSegment reports whether a segment of an address's path may contain a secret. Some cameras
// expect the account as parameters in the path.
func isSecretSegment(scheme, segment string) bool {
	return scheme != "file" && strings.Contains(segment, "=")
}

// streamKey returns the last segment of an address's path, which is the stream key in RTMP.
func streamKey(path string) string {
	path = strings.TrimRight(path, "/")
	return path[strings.LastIndexByte(path, '/')+1:]
}

// isSafe reports whether the value of a parameter is known to be no secret.
func isSafe(key, value string) bool {
	return slices.Contains(safeParameters, key) && safeValue.MatchString(value)
}

// Fault returns a text that says what invalid parameters of SRT in the address should be, or "" if they
// are valid.
func (s SourceAddress) Fault() string {
	u, err := url.Parse(string(s))
	if err != nil || u.Scheme != "srt" {
		return ""
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return "parameters in the form a=b&c=d"
	}
	if n := len(q.Get("passphrase")); q.Has("passphrase") && (n < minPassphrase || n > maxPassphrase) {
		return "a passphrase of " + strconv.Itoa(minPassphrase) + " to " + strconv.Itoa(maxPassphrase) + " bytes"
	}
	if q.Has("pbkeylen") && !slices.Contains([]string{"16", "24", "32"}, q.Get("pbkeylen")) {
		return "pbkeylen 16, 24 or 32"
	}
	if n := len(q.Get("streamid")); n > maxStreamID {
		return "a streamid of at most " + strconv.Itoa(maxStreamID) + " bytes"
	}
	if us, err := strconv.Atoi(q.Get("latency")); q.Has("latency") && (err != nil || us < 0 || us > maxLatency) {
		return "latency in microseconds, up to " + strconv.Itoa(maxLatency)
	}
	return ""
}

// Bounds of the parameters of SRT, which are those of its library: of a passphrase and a stream
// ID in bytes, and of the latency in microseconds.
const (
	minPassphrase, maxPassphrase = 10, 79
	maxStreamID                  = 512
	maxLatency                   = 60_000_000
)

// Hidden replaces the parts of a source that are not shown.
const Hidden = "…"

// safeParameters are the parameters of a source whose values are no secrets, and safeValue is
// the form of such a value. The values of all other parameters are hidden, because their
// meaning to a camera is not known.
var (
	safeParameters = []string{
		"fifo_size", "keyframes", "latency", "localport", "mode", "overrun_nonfatal", "pbkeylen", "pkt_size", "rate", "rtcpport", "size", "timeout",
	}
	safeValue = regexp.MustCompile(`^[0-9A-Za-z.]{1,16}$`)
)

// urlPattern matches what may be a source within other text: "scheme:" and everything up to a
// blank.
var urlPattern = regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*:\S+`)

// redactText returns a program's output without the secrets of addresses that it contains.
func redactText(text string) string {
	return urlPattern.ReplaceAllStringFunc(text, func(at string) string {
		address := strings.TrimRight(at, `.,:;'")]`)
		return redactSource(address) + at[len(address):]
	})
}

// redactSource returns an address without its account, its stream key, and the values of
// parameters that are not known to be harmless, wherever they are. If it is not clear where these
// are, it returns only the scheme.
func redactSource(source string) string {
	where, query, asks := strings.Cut(source, "?")
	scheme, _, _ := strings.Cut(where, ":")
	if isFile := scheme == "file" && !strings.HasPrefix(where, "file://"); isFile || !asks && !strings.Contains(where, "@") {
		return redactPath(scheme, source)
	}
	u, err := url.Parse(where)
	account := err == nil && u.User != nil
	switch {
	case err != nil, u.Opaque != "", u.Fragment != "", !account && (strings.Contains(u.Host, "@") || strings.Contains(query, "@")):
		return scheme + ":" + Hidden
	case account:
		where = scheme + "://" + Hidden + where[strings.LastIndexByte(where[:len(where)-len(afterHost(where))], '@'):]
	}
	where = redactPath(scheme, where)
	if asks {
		where += "?" + redactQuery(query)
	}
	return where
}

// redactPath returns an address that has no query without the secrets of its path.
func redactPath(scheme, where string) string {
	path := afterHost(where)
	if path == "" || scheme == "file" {
		return where
	}
	segments := strings.Split(path, "/")
	for i, segment := range segments {
		if isSecretSegment(scheme, segment) {
			segments[i] = Hidden
		}
	}
	hidden := strings.Join(segments, "/")
	if key := streamKey(hidden); scheme == "rtmp" && key != "" {
		hidden = strings.TrimRight(hidden, "/")
		hidden = hidden[:len(hidden)-len(key)] + Hidden
	}
	return where[:len(where)-len(path)] + hidden
}

// afterHost returns the part of an address from its path on, or "" if the address has none.
func afterHost(address string) string {
	_, rest, _ := strings.Cut(address, "://")
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		return rest[i:]
	}
	return ""
}

// redactQuery returns a source's parameters without secrets. A parameter without a value may be
// a secret itself.
func redactQuery(query string) string {
	all := strings.Split(query, "&")
	for i, one := range all {
		key, value, ok := strings.Cut(one, "=")
		switch {
		case !ok || strings.Trim(value, "=") == "": // the "=" may be the padding of a secret in base64
			all[i] = Hidden
		case !isSafe(key, value):
			all[i] = key + "=" + Hidden
		}
	}
	return strings.Join(all, "&")
}
