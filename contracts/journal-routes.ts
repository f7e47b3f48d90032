/** Routes of a deployment's services: journal (interface 4.7; decisions, Deployment services). */
export const journalRoutes = {} as const;
