package cinema

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"strings"
	"unicode"

	"golang.org/x/crypto/bcrypt"

	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

// MaxChannels is the highest number of channels.
const MaxChannels = 4096

// ChannelSpec is a channel as an operator declares it.
type ChannelSpec struct {
	Name    string                  `json:"name" pattern:"^[a-z0-9][a-z0-9-]{0,62}$" patternDescription:"up to 63 lower-case letters, digits and dashes, a letter or digit first" doc:"Lower-case letters, digits and dashes" example:"news"`
	Number  int                     `json:"number" minimum:"1" maximum:"9999" doc:"Number that no other channel has; it determines the source port of its packets" example:"1"`
	Title   string                  `json:"title,omitempty" maxLength:"128" doc:"Title that viewers see; left out: its name" example:"The News"`
	Source  gatewayapi.StoredSource `json:"source,omitempty" maxLength:"1024" doc:"Address of its producer: test:, file:/PATH, or a URL with rtsp, rtmp, srt or udp; left out: a producer publishes it by WHIP" example:"rtsp://10.0.0.7/live"`
	BitRate units.Rate              `json:"bit_rate" doc:"What it may send, like 2Mbit, from 100kbit to 1Gbit; that much is reserved for it on each link that carries it" example:"2Mbit"`
	Picture gatewayapi.Picture      `json:"picture,omitempty" enum:"360p,480p,720p,1080p,1440p" doc:"Largest picture that viewers get if its gateway encodes it; left out: 720p. A larger one is scaled down, a producer by WHIP is not encoded"`
	Ingress string                  `json:"ingress,omitempty" maxLength:"63" doc:"Ingress gateway for it; left out: the controller chooses" example:"studio"`

	ViewPassword    string `json:"view_password,omitempty" writeOnly:"true" maxLength:"72" doc:"Password for its viewers, up to 72 bytes; left out: everybody may watch. It is never shown"`
	PublishPassword string `json:"publish_password,omitempty" writeOnly:"true" maxLength:"72" doc:"Password for its producers, up to 72 bytes; left out: nobody can publish it by WHIP. It is never shown"`
}

// Channel is a channel as it is stored.
type Channel struct {
	Name    string                  `json:"name"`
	Number  uint16                  `json:"number"`
	Title   string                  `json:"title,omitempty"`
	Source  gatewayapi.StoredSource `json:"source,omitempty"`
	BitRate units.Rate              `json:"bit_rate"`
	Picture gatewayapi.Picture      `json:"picture,omitempty"`
	Ingress string                  `json:"ingress,omitempty"`
	// ViewHash and PublishHash are the bcrypt hashes of the passwords; empty means no password.
	ViewHash    string `json:"view_hash,omitempty"`
	PublishHash string `json:"publish_hash,omitempty"`
}

var channelName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// maxPassword is the length in bytes beyond which bcrypt ignores a password.
const maxPassword = 72

// Parse converts a specification to a channel, and returns all its faults.
func (s *ChannelSpec) Parse() (Channel, kit.Faults) {
	c := Channel{Name: s.Name, Title: s.Title, Source: s.Source, BitRate: s.BitRate, Picture: s.Picture, Ingress: s.Ingress}
	var faults kit.Faults
	faults.Check(s.Number >= 1 && s.Number <= gatewayapi.MaxNumber, "number", s.Number, "a number from 1 to %d", gatewayapi.MaxNumber)
	c.Number = uint16(min(max(s.Number, 0), gatewayapi.MaxNumber))
	c.ViewHash = hashPassword("view_password", s.ViewPassword, &faults)
	c.PublishHash = hashPassword("publish_password", s.PublishPassword, &faults)
	return c, append(faults, c.validate()...)
}

// hashPassword returns the hash of a password, or "" if there is none. It takes some ten
// milliseconds.
func hashPassword(field, password string, faults *kit.Faults) string {
	if password == "" {
		return ""
	}
	if len(password) > maxPassword {
		faults.Add(field, "(hidden)", "at most %d bytes", maxPassword)
		return ""
	}
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.DefaultCost)
	if err != nil {
		faults.Add(field, "(hidden)", "another password: %v", err)
	}
	return string(hash)
}

// validate returns the faults of a channel, except those of its number. The channel may be from the
// API, from a configuration file or from the store.
func (c *Channel) validate() (faults kit.Faults) {
	faults.Check(channelName.MatchString(c.Name), "name", c.Name, "up to 63 lower-case letters, digits and dashes, a letter or digit first")
	faults.Check(len(c.Title) <= 512 && !strings.ContainsFunc(c.Title, unicode.IsControl), "title", c.Title, "up to 128 characters in one line")
	faults.Check(c.BitRate >= gatewayapi.MinRate && c.BitRate <= gatewayapi.MaxRate, "bit_rate", c.BitRate, "a rate from %v to %v", gatewayapi.MinRate, gatewayapi.MaxRate)
	faults.Check(c.Picture.Validate() == nil, "picture", string(c.Picture), "360p, 480p, 720p, 1080p or 1440p")
	if why := sourceFault(c.Source); why != "" {
		faults.Add("source", c.Source.String(), "%s", why)
	}
	faults.Check(len(c.Ingress) <= 63, "ingress", c.Ingress, "the name of an ingress gateway")
	for field, hash := range map[string]string{"view_hash": c.ViewHash, "publish_hash": c.PublishHash} {
		if _, err := bcrypt.Cost([]byte(hash)); hash != "" && err != nil {
			faults.Add(field, "(hidden)", "a hash of bcrypt, like those of \"htpasswd -nB USER\" behind the colon")
		}
	}
	return faults
}

// ParseFile converts a channel of a configuration file, which holds hashes instead of
// passwords, and returns all its faults.
func (s *ChannelSpec) ParseFile(viewHash, publishHash string) (Channel, kit.Faults) {
	c, faults := s.Parse()
	c.ViewHash, c.PublishHash = viewHash, publishHash
	hashes := Channel{Name: "x", BitRate: gatewayapi.MinRate, ViewHash: viewHash, PublishHash: publishHash}
	return c, append(faults, hashes.validate()...)
}

// decode reads a channel from its stored form.
func decode(b []byte) (c Channel, err error) {
	if err = json.Unmarshal(b, &c); err != nil {
		return c, err
	}
	faults := c.validate()
	faults.Check(c.Number >= 1 && c.Number <= gatewayapi.MaxNumber, "number", c.Number, "a number from 1 to %d", gatewayapi.MaxNumber)
	return c, faults.Err()
}

// conflicts returns Faults if another channel has the same number.
func conflicts(name string, c Channel, all []kit.Item[Channel]) error {
	for _, x := range all {
		if x.Name != name && x.Value.Number == c.Number {
			return kit.Faults{{Field: "number", Value: c.Number, Want: fmt.Sprintf("a number of its own: channel %s has this one", x.Name)}}
		}
	}
	return nil
}

const sourceForm = "test:, file:/PATH, or a URL with rtsp, rtmp, srt or udp and a host, without blanks"

// sourceFault returns a text that says what an invalid source should be, or "" if the source is
// valid.
func sourceFault(address gatewayapi.StoredSource) string {
	source := string(address)
	if source == "" {
		return ""
	}
	if len(source) > 1024 || strings.ContainsFunc(source, func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) }) {
		return sourceForm
	}
	if strings.Contains(source, gatewayapi.Hidden) {
		return "the whole source: " + gatewayapi.Hidden + " stands for what is not shown"
	}
	u, err := url.Parse(source)
	if err != nil {
		return sourceForm
	}
	switch u.Scheme {
	case "test":
	case "file":
		if name := strings.TrimPrefix(source, "file:"); !path.IsAbs(name) || path.Clean(name) != name {
			return "file: and a path from the root on, without ."
		}
	case "rtsp", "rtmp", "srt", "udp":
		if u.Host == "" {
			return sourceForm
		}
		return gatewayapi.SourceAddress(source).Fault()
	default:
		return sourceForm
	}
	return ""
}

// forGateway returns the channel in the form that its ingress gateway gets.
func (c *Channel) forGateway(media netip.Addr) gatewayapi.Channel {
	return gatewayapi.Channel{Name: c.Name, Number: c.Number, Source: c.Source, BitRate: c.BitRate, Picture: c.Picture, To: media, PublishHash: c.PublishHash}
}
