/** Routes of a deployment's services: regulation (interface 4.7; decisions, Deployment services). */
export const regulationRoutes = {} as const;
