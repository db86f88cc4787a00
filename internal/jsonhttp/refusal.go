package jsonhttp

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// waitError is an error of a service that says when to retry.
type waitError struct {
	error
	after time.Duration
}

// RetryAfter returns how long not to call the service. It is negative if repeating the call is
// useless.
func (w waitError) RetryAfter() time.Duration { return w.after }

// Unwrap returns the underlying error.
func (w waitError) Unwrap() error { return w.error }

// tooMany matches messages that say a call was too large, for statuses that can have other
// reasons too.
var tooMany = regexp.MustCompile(`(?i)batch size|too (many|large|long)|(number|list|array) of|at most|max(imum)?\b|max_|exceed|(larger|more|longer|greater) than|limit`)

// refusal returns the error for a status other than 200, for a request with n texts.
func (c *Client) refusal(status int, header http.Header, body []byte, n int) error {
	message := fmt.Sprintf("status %d", status)
	if detail := messageOf(header, body); detail != "" {
		message += ": " + detail
	}
	switch {
	case status == http.StatusRequestEntityTooLarge:
		return fmt.Errorf("%w: %d texts: %s", c.options.Errors.TooLarge, n, message)
	case status == http.StatusBadRequest || status == http.StatusUnprocessableEntity:
		if n > 1 && tooMany.MatchString(message) {
			return fmt.Errorf("%w: %d texts: %s", c.options.Errors.TooLarge, n, message)
		}
		return fmt.Errorf("%w: %s", c.options.Errors.Request, message)
	case status >= 300 && status < 400:
		return never(fmt.Errorf("%w: %s to %q, which is not followed; put the address itself in url",
			c.options.Errors.Unavailable, message, hostOf(header)))
	case status == http.StatusTooManyRequests, status == http.StatusRequestTimeout, status == http.StatusFailedDependency, status >= 500:
		err := fmt.Errorf("%w: %s", c.options.Errors.Unavailable, message)
		if after, ok := retryAfter(header.Get("Retry-After"), time.Now()); ok {
			return waitError{err, after}
		}
		return err
	default: // token, path or method are wrong: a repeated request would be refused too
		return never(fmt.Errorf("%w: %s", c.options.Errors.Unavailable, message))
	}
}

func never(err error) error { return waitError{err, -1} }

// hostOf returns the target of a redirect, without path and query.
func hostOf(header http.Header) string {
	scheme, rest, ok := strings.Cut(header.Get("Location"), "://")
	if !ok {
		return "another path"
	}
	host, _, _ := strings.Cut(rest, "/")
	return scheme + "://" + host[strings.LastIndexByte(host, '@')+1:]
}

// retryAfter parses the header's value, which is in seconds or a date.
func retryAfter(value string, now time.Time) (time.Duration, bool) {
	if seconds, err := strconv.Atoi(value); err == nil && seconds >= 0 {
		return time.Duration(min(seconds, 3600)) * time.Second, true
	}
	if at, err := http.ParseTime(value); err == nil {
		return min(max(at.Sub(now), 0), time.Hour), true
	}
	return 0, false
}

// messageOf extracts the error message from an answer: TEI's "error", Cohere's "message",
// the "detail" of Jina and others, or plain text.
func messageOf(header http.Header, body []byte) string {
	var said struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
		Detail  json.RawMessage `json:"detail"`
	}
	if json.Unmarshal(body, &said) != nil {
		if strings.HasPrefix(header.Get("Content-Type"), "text/plain") {
			return firstLine(string(body))
		}
		return ""
	}
	for _, text := range []string{said.Message, sentence(said.Error), sentence(said.Detail)} {
		if text != "" {
			return firstLine(text)
		}
	}
	return ""
}

// sentence returns a string, the message of an object, or the message of the first object
// of a list. It ignores other content, which could repeat the request.
func sentence(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	type object struct {
		Message string `json:"message"`
		Msg     string `json:"msg"`
	}
	var first object
	var list []object
	if json.Unmarshal(raw, &list) == nil && len(list) > 0 {
		first = list[0]
	} else if json.Unmarshal(raw, &first) != nil {
		return ""
	}
	if first.Message != "" {
		return first.Message
	}
	return first.Msg
}

// firstLine returns the beginning of a text, on one line.
func firstLine(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
	if runes := []rune(text); len(runes) > 200 {
		return string(runes[:200]) + "…"
	}
	return strings.TrimSpace(text)
}
