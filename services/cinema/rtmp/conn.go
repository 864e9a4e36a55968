package rtmp

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/bluenviron/gortmplib/pkg/amf0"
)

const (
	handshakeSize = 1536
	version       = 3
	// windowSize is how many bytes a party sends before it wants an acknowledgement.
	windowSize = 2_500_000
	// chunkSize is the size of the server's chunks; no answer is longer.
	chunkSize = 4096
	// maxCommands bounds the commands of a client before it publishes.
	maxCommands = 32
)

// Conn is a connection by which a client publishes a stream.
type Conn struct {
	// App is the application that the client has connected to, and Key the name of the stream,
	// without its parameters.
	App, Key string

	rw     io.ReadWriter
	in     *chunkReader
	acked  uint32 // bytes that were acknowledged
	window uint32 // bytes after which the client wants an acknowledgement
	stream uint32 // message stream of the publication
}

// Accept performs the handshake, and answers the client's commands until it asks to publish. The
// caller then calls Permit or Refuse.
func Accept(rw io.ReadWriter) (*Conn, error) {
	c := &Conn{rw: rw, in: newChunkReader(rw), window: windowSize}
	if err := c.handshake(); err != nil {
		return nil, fmt.Errorf("RTMP handshake: %w", err)
	}
	for range maxCommands {
		name, id, args, stream, err := c.command()
		if err != nil {
			return nil, fmt.Errorf("RTMP: %w", err)
		}
		switch done, err := c.answer(name, id, args, stream); {
		case err != nil:
			return nil, fmt.Errorf("RTMP %s: %w", name, err)
		case done:
			return c, nil
		}
	}
	return nil, fmt.Errorf("RTMP: %d commands, and no publish", maxCommands)
}

// handshake performs the plain handshake (section 5.2).
func (c *Conn) handshake() error {
	var c0c1 [1 + handshakeSize]byte
	if err := c.in.fill(c0c1[:]); err != nil {
		return err
	}
	if c0c1[0] != version {
		return fmt.Errorf("version %d, want %d", c0c1[0], version)
	}
	answer := make([]byte, 1+2*handshakeSize)
	answer[0] = version
	_, _ = rand.Read(answer[9 : 1+handshakeSize]) // never fails
	copy(answer[1+handshakeSize:], c0c1[1:])
	if _, err := c.rw.Write(answer); err != nil {
		return err
	}
	return c.in.fill(c0c1[1:])
}

// command reads messages until a command arrives.
func (c *Conn) command() (name string, id float64, args []any, stream uint32, err error) {
	for {
		m, err := c.next()
		if err != nil {
			return "", 0, nil, 0, err
		}
		if m.Type != typeCommand {
			continue
		}
		all, err := amf0.Unmarshal(m.Body)
		if err != nil {
			return "", 0, nil, 0, fmt.Errorf("command: %w", err)
		}
		if len(all) < 2 {
			return "", 0, nil, 0, errors.New("command without a name or a number")
		}
		name, named := all[0].(string)
		id, numbered := all[1].(float64)
		if !named || !numbered {
			return "", 0, nil, 0, errors.New("command without a name or a number")
		}
		return name, id, all[2:], m.stream, nil
	}
}

// answer answers a command, and reports whether it was the one to publish, which it leaves to
// the caller.
func (c *Conn) answer(name string, id float64, args []any, stream uint32) (published bool, err error) {
	switch name {
	case "connect":
		return false, c.connect(id, args)
	case "createStream":
		return false, c.result(id, nil, float64(1))
	case "releaseStream", "FCPublish":
		return false, c.result(id, nil)
	case "publish":
		key := ""
		if len(args) > 1 {
			key, _ = args[1].(string)
		}
		c.Key, _, _ = strings.Cut(key, "?")
		c.stream = stream
		return true, nil
	case "play":
		return false, errors.New("streams can only be published here")
	}
	return false, nil // the client needs no answer to other commands
}

// connect answers the command to connect to an application.
func (c *Conn) connect(id float64, args []any) error {
	if len(args) == 0 {
		return errors.New("want an object with the application")
	}
	object, _ := args[0].(amf0.Object)
	app, ok := object.GetString("app")
	if !ok {
		return errors.New("want an object with the application")
	}
	c.App, _, _ = strings.Cut(app, "?")
	c.App = strings.Trim(c.App, "/")
	out := appendMessage(nil, 2, Message{Type: typeWindowSize, Body: binary.BigEndian.AppendUint32(nil, windowSize)})
	out = appendMessage(out, 2, Message{Type: typeBandwidth, Body: append(binary.BigEndian.AppendUint32(nil, windowSize), 2)})
	out = appendMessage(out, 2, Message{Type: typeChunkSize, Body: binary.BigEndian.AppendUint32(nil, chunkSize)})
	if _, err := c.rw.Write(out); err != nil {
		return err
	}
	return c.result(id, amf0.Object{{Key: "fmsVer", Value: "FMS/3,0,1,123"}, {Key: "capabilities", Value: float64(31)}}, amf0.Object{
		{Key: "level", Value: "status"},
		{Key: "code", Value: "NetConnection.Connect.Success"},
		{Key: "description", Value: "Connection succeeded."},
		{Key: "objectEncoding", Value: float64(0)},
	})
}

func (c *Conn) result(id float64, args ...any) error {
	return c.send(3, 0, append(amf0.Data{"_result", id}, args...))
}

// status sends the status of the publication.
func (c *Conn) status(level, code, text string) error {
	return c.send(5, c.stream, amf0.Data{"onStatus", float64(0), nil, amf0.Object{
		{Key: "level", Value: level}, {Key: "code", Value: code}, {Key: "description", Value: text},
	}})
}

func (c *Conn) send(chunk byte, stream uint32, command amf0.Data) error {
	body, err := command.Marshal()
	if err != nil {
		return err
	}
	_, err = c.rw.Write(appendMessage(nil, chunk, Message{Type: typeCommand, Body: body, stream: stream}))
	return err
}

// Permit tells the client that it may publish.
func (c *Conn) Permit() error {
	c.in.early = false
	return c.status("status", "NetStream.Publish.Start", "Start publishing.")
}

// Refuse tells the client why it may not publish. The caller then closes the connection.
func (c *Conn) Refuse(why string) error {
	return c.status("error", "NetStream.Publish.BadName", why)
}

// Read returns the next message of the stream, of TypeAudio or TypeVideo. It returns io.EOF if the
// client ends the stream.
func (c *Conn) Read() (Message, error) {
	for {
		m, err := c.next()
		if err != nil {
			return m, err
		}
		switch m.Type {
		case TypeAudio, TypeVideo:
			return m, nil
		case typeCommand:
			if all, err := amf0.Unmarshal(m.Body); err == nil && len(all) > 0 {
				switch all[0] {
				case "deleteStream", "closeStream", "FCUnpublish":
					return m, io.EOF
				}
			}
		}
	}
}

// next returns the next message of any type. Before it returns a message that controls the protocol, it
// acts on the message. It also acknowledges received bytes.
func (c *Conn) next() (Message, error) {
	m, err := c.in.read()
	if err != nil {
		return m, err
	}
	if c.in.count-c.acked >= c.window {
		c.acked = c.in.count
		if _, err := c.rw.Write(appendMessage(nil, 2, Message{Type: typeAck, Body: binary.BigEndian.AppendUint32(nil, c.acked)})); err != nil {
			return m, err
		}
	}
	if len(m.Body) < 4 {
		return m, nil
	}
	value := binary.BigEndian.Uint32(m.Body)
	switch m.Type {
	case typeChunkSize:
		if value < 1 || value > maxIncomplete {
			return m, fmt.Errorf("chunk size %d, want 1 to %d", value, maxIncomplete)
		}
		c.in.size = int(value)
	case typeAbort:
		c.in.abort(value)
	case typeWindowSize:
		c.window = max(value, 1024)
	}
	return m, nil
}
