/**
 * HTML from templates: html`<p>${text}</p>`.
 *
 * Guarantee: every interpolated text is escaped for element content and for quoted attributes, so that nothing a person or a server
 * wrote becomes markup; only another Html goes in as it is, and only this file makes one. It does not know unquoted attributes,
 * scripts or styles: the templates have none (the content security policy refuses them anyway).
 */
export class Html {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

/** null and undefined are nothing. */
export type Part = string | number | Html | null | undefined | readonly Part[];

const entities: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' };

/** For element content and for attribute values in quotes of either kind. */
export const escape = (text: string): string => text.replace(/[&<>"']/g, (character) => entities[character] ?? '');

const written = (part: Part): string => {
  if (part === null || part === undefined) return '';
  if (part instanceof Html) return part.text;
  if (typeof part === 'object') return part.map(written).join('');
  return escape(String(part));
};

export const html = (texts: TemplateStringsArray, ...parts: readonly Part[]): Html =>
  new Html(texts.map((text, index) => text + (index < parts.length ? written(parts[index]) : '')).join(''));
