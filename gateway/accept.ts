/** Whether a client would rather have a page than JSON (RFC 9110 section 12.5.1). */

const weightOf = (params: readonly string[]): number => {
  for (const param of params) {
    const weight = /^\s*q=([01](?:\.\d{0,3})?)\s*$/i.exec(param)?.[1];
    if (weight !== undefined) return Number(weight);
  }
  return 1;
};

/** True if `text/html` is named and weighs more than `application/json`, or as much and comes first. A wildcard names neither. */
export const prefersHtml = (accept: string): boolean => {
  let html = 0;
  let json = 0;
  for (const [type = '', ...params] of accept.split(',').map((entry) => entry.split(';'))) {
    const name = type.trim().toLowerCase();
    if (name === 'text/html' && html === 0) {
      html = weightOf(params);
      // Later ones must weigh more.
      if (html <= json) return false;
    } else if (name === 'application/json' && json === 0) {
      json = weightOf(params);
    }
  }
  return html > 0 && html >= json;
};
