package rerank

import "github.com/google/uuid"

// CanonicalUUID returns the one spelling of a UUID by which ids are compared: lower case with hyphens.
// text may also be in upper case, without hyphens, in braces or after "urn:uuid:". CanonicalUUID
// reports false if text is no UUID. It allocates nothing for a text in that spelling.
func CanonicalUUID(text string) (string, bool) {
	if isCanonicalUUID(text) {
		return text, true
	}
	if uuid.Validate(text) != nil { // Parse accepts any characters in place of braces
		return "", false
	}
	u, err := uuid.Parse(text)
	return u.String(), err == nil
}

func isCanonicalUUID(text string) bool {
	if len(text) != 36 {
		return false
	}
	for i, c := range []byte(text) {
		switch isHyphen := i == 8 || i == 13 || i == 18 || i == 23; {
		case isHyphen && c == '-':
		case !isHyphen && ('0' <= c && c <= '9' || 'a' <= c && c <= 'f'):
		default:
			return false
		}
	}
	return true
}
